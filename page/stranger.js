import { goToProvider, logIn, read, readServices } from './api.js'
import { button, fill, h, swatch } from './dom.js'

/**
 * Shows what everybody may see, and the log-in. `entered` is called after it; `why` says why a new one is
 * needed.
 */
export function strangerView(place, entered, why) {
  let isOver = false
  const problem = h('p', { class: 'problem', role: 'alert' }, why)
  const name = h('input', {
    id: 'user',
    name: 'username',
    autocomplete: 'username',
    required: true,
    autocapitalize: 'none',
    spellcheck: false
  })
  const password = h('input', {
    id: 'password',
    name: 'password',
    type: 'password',
    autocomplete: 'current-password',
    required: true
  })
  const submit = h('button', { type: 'submit', class: 'main' }, 'Log in')
  const form = h(
    'form',
    {
      class: 'card login',
      'aria-labelledby': 'login',
      onsubmit: async event => {
        event.preventDefault()
        submit.disabled = true
        try {
          await logIn(name.value, password.value)
          entered()
        } catch (error) {
          fill(problem, error.message)
          submit.disabled = false
          password.select()
        }
      }
    },
    h('h2', { id: 'login' }, 'Log in'),
    h('label', { for: 'user' }, 'User'),
    name,
    h('label', { for: 'password' }, 'Password'),
    password,
    problem,
    submit
  )
  read('/auth').then(
    ({ oidc }) => {
      if (oidc === null || isOver) return
      const go = button(`Log in with ${oidc}`, () => {
        go.disabled = true
        goToProvider().catch(error => {
          fill(problem, error.message)
          go.disabled = false
        })
      })
      form.append(go)
    },
    () => {}
  )
  const services = h(
    'section',
    { class: 'card', 'aria-labelledby': 'services' },
    h('h2', { id: 'services' }, 'Services')
  )
  const images = h(
    'section',
    { class: 'card', 'aria-labelledby': 'images' },
    h('h2', { id: 'images' }, 'Images')
  )
  fill(
    place,
    h('h1', { class: 'unseen' }, 'svcd'),
    h('div', { class: 'stranger' }, form, h('div', {}, services, images))
  )
  name.focus({ preventScroll: true })
  const load = async () => {
    const [states, list] = await Promise.all([readServices(), read('/config/osimage')])
    if (isOver) return
    fill(
      services,
      h('h2', { id: 'services' }, 'Services'),
      h(
        'ul',
        { class: 'plain' },
        Object.entries(states).map(([service, { status }]) =>
          h(
            'li',
            {},
            swatch(status === 'ok' ? 'fine' : 'failed'),
            ` ${service}: ${status === 'ok' ? 'well' : 'not well'}`
          )
        )
      )
    )
    const names = Object.keys(list.config.osimage)
    fill(
      images,
      h('h2', { id: 'images' }, 'Images'),
      names.length === 0
        ? h('p', { class: 'empty' }, 'None yet.')
        : h(
            'ul',
            { class: 'plain' },
            names.map(image => h('li', {}, image))
          )
    )
  }
  const again = () =>
    load().catch(error =>
      fill(services, h('h2', { id: 'services' }, 'Services'), h('p', { class: 'problem' }, error.message))
    )
  again()
  const timer = setInterval(() => document.hidden || again(), 30_000)
  return () => {
    isOver = true
    clearInterval(timer)
  }
}
