import t from 'tap'
import { FileRenderer } from '../../lib/boot/file-renderer.js'

const loop = `{% for i in ${JSON.stringify(Array(100).fill(1))} %}`
const loops = (text: string) => `${loop.repeat(8)}${text}${'{% endfor %}'.repeat(8)}`

// rules 4.25
t.test('a template that takes too much is ended; the event loop goes on, and so do others', async t => {
  const renderer = new FileRenderer(500)
  t.teardown(() => renderer.close())
  const render = (template: string) => renderer.render({ name: 'motd', template, data: { x: 'of x' } })
  t.same(await render('{{ x }}'), { text: 'of x' })
  let ticks = 0
  const tick = setInterval(() => ticks++, 5)
  t.same(await render(loops('')), { problem: 'motd: it takes longer than 0.5 s' })
  clearInterval(tick)
  t.ok(ticks > 10, 'the event loop goes on', { ticks })
  t.same(await render('{{ x }}'), { text: 'of x' }, 'a thread of its own again')
  t.same(await render('a\n{{ y }}'), { problem: "motd:2:4: 'y' is undefined" })
})

t.test('a template that takes too much memory is ended', async t => {
  const renderer = new FileRenderer(60_000)
  t.teardown(() => renderer.close())
  const answer = await renderer.render({ name: 'motd', template: loops('{{ i ~ i ~ i }}'), data: {} })
  t.match(answer, { problem: 'motd: it takes more than 64 MB of memory' })
})
