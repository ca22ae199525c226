import { button, fill, h } from './dom.js'

/**
 * Asks for confirmation: `title` and `text` describe the action. With `does` it runs while the dialog is
 * open, which shows a refusal. Resolves to whether it was done.
 */
export function confirm({ title, text, yes, isGrave = false, does = async () => {} }) {
  return new Promise(resolve => {
    let isDone = false
    const problem = h('p', { class: 'problem', role: 'alert' })
    const no = h('button', { type: 'button', autofocus: true, onclick: () => dialog.close() }, 'No, go back')
    const go = h('button', { type: 'button', class: isGrave ? 'grave' : 'main' }, yes)
    const dialog = h(
      'dialog',
      { 'aria-labelledby': 'dialog-title', 'aria-describedby': 'dialog-text', class: 'confirm' },
      h('h2', { id: 'dialog-title' }, title),
      h(
        'div',
        { id: 'dialog-text' },
        [text].flat().map(line => (line instanceof Node ? line : h('p', {}, line)))
      ),
      problem,
      h('div', { class: 'buttons' }, no, go)
    )
    go.addEventListener('click', async () => {
      go.disabled = true
      try {
        await does()
        isDone = true
        dialog.close()
      } catch (error) {
        fill(problem, error.message)
        go.disabled = false
      }
    })
    dialog.addEventListener('close', () => {
      dialog.remove()
      resolve(isDone)
    })
    document.body.append(dialog)
    dialog.showModal()
  })
}

/** Shows a message at the top of the page, until it is dismissed. */
export function notice(text, { link, isBad = false } = {}) {
  const place = document.getElementById('notices')
  const entry = h(
    'div',
    { class: isBad ? 'notice bad' : 'notice' },
    h('span', {}, text),
    link && h('a', { href: link.href }, link.text),
    button('✕', () => entry.remove(), { class: 'quiet', 'aria-label': 'Put this message away' })
  )
  place.append(entry)
  while (place.children.length > 4) place.firstChild.remove()
}
