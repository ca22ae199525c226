import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Controller } from '../support/controller.js'

const directory = fileURLToPath(new URL('../../page', import.meta.url))
const files = readdirSync(directory)
const textOf = (name: string) => readFileSync(`${directory}/${name}`, 'utf8')

// rules 6.12
t.test('the page is served to everybody, with a policy that lets nothing else in', async t => {
  const c = await Controller.start(t)
  const pages = ['/', ...files.map(name => `/page/${name}`)]
  const tags = new Set<unknown>()
  for (const path of pages) {
    const { status, text, headers } = await c.get(path, { token: null })
    t.equal(status, 200, path)
    t.equal(text, textOf(path === '/' ? 'index.html' : path.slice('/page/'.length)), `${path}: as it is`)
    t.match(headers, {
      etag: /^"[\da-f]{32}"$/,
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'content-type': /^(text\/(html|css|javascript); charset=utf-8|image\/svg\+xml)$/
    })
    tags.add(headers.etag)
    const policy = String(headers['content-security-policy']).split('; ')
    t.ok(policy.includes("default-src 'none'"), path)
    t.ok(policy.includes("frame-ancestors 'none'"), path)
    t.notMatch(policy.join(), /unsafe|\*|http|data:|blob:/, `${path}: no other source`)
  }
  t.equal(tags.size, files.length, 'each file has a tag of its own')
  const zipped = await c.get('/page/app.js', { token: null, headers: { 'Accept-Encoding': 'gzip' } })
  t.equal(zipped.headers['content-encoding'], 'gzip')
  t.not(zipped.headers.etag, (await c.get('/page/app.js', { token: null })).headers.etag)
  const head = await c.get('/', { token: null, method: 'HEAD' })
  t.equal(head.status, 200)
  t.equal(head.text, '')
  for (const path of ['/page/none.js', '/page/..%2fpackage.json', '/page/__proto__', '/page/', '/index.html'])
    t.equal((await c.get(path, { token: null })).status, 404, path)
  t.equal((await c.post('/', {}, { token: null })).status, 405)
})

// rules 6.12
t.test('the files name no other host, hold no inline script, and make no HTML from texts', t => {
  for (const name of files) {
    const text = textOf(name).replaceAll('http://www.w3.org/2000/svg', '')
    t.notMatch(text, /(https?:)?\/\/[a-z\d-]+\.[a-z]/i, `${name}: no other host`)
    t.notMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/, name)
    if (name.endsWith('.html')) t.notMatch(text, /<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=/, name)
    t.notMatch(text, /localStorage|document\.cookie/, `${name}: the token is kept for the tab alone`)
  }
  const html = textOf('index.html')
  for (const name of files.filter(file => file.endsWith('.js')))
    t.ok(html.includes(`/page/${name}`), `${name} is loaded without waiting for another one`)
  t.end()
})
