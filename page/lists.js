import { read, readServices } from './api.js'
import { changesOf } from './changes.js'
import { cluster, whenChanged } from './cluster.js'
import { confirm } from './dialog.js'
import {
  ago,
  alike,
  button,
  count,
  duration,
  fill,
  h,
  moment,
  number,
  soon,
  swatch,
  table,
  terms
} from './dom.js'
import { linkTo } from './nodes.js'

const empty = text => h('p', { class: 'empty' }, text)

/** A view that is loaded at once, and again when `load` is called. */
export function loaded(place, title, load, draw) {
  const body = h('div', {}, h('p', { class: 'faint' }, 'Loading …'))
  fill(place, h('h1', {}, title), body)
  let isOver = false
  const again = async () => {
    try {
      const data = await load()
      if (!isOver) draw(body, data)
    } catch (error) {
      if (!isOver && error.status !== 401)
        fill(body, h('p', { class: 'problem', role: 'alert' }, error.message))
    }
  }
  const first = again()
  /** Returns the function that ends the view, and what it listened to. */
  const until = ends => () => {
    isOver = true
    for (const end of ends) end()
  }
  return { again: soon(300, () => first.then(again)), until, body }
}

/** Shows running and past requests: their progress, and how to cancel them. */
export function jobsView(place, { mayAct, events }) {
  let jobs = new Map()
  const mostDone = 100
  const list = loaded(
    place,
    'Jobs',
    async () => (await read('/monitor/request')).monitor.request,
    (body, request) => {
      jobs = new Map(Object.entries(request).slice(0, 2000))
      draw(body)
    }
  )
  const unfolded = new Set()
  const isOpen = ({ state }) => state === 'running' || state === 'queued'

  function draw(body) {
    const all = [...jobs.values()].sort((a, b) => Date.parse(b.queued) - Date.parse(a.queued))
    const open = all.filter(isOpen)
    // Repeated requests become one line.
    const ended = new Map()
    for (const job of all.filter(job => !isOpen(job))) {
      const key = [job.kind, job.object, job.by, job.message].join(' ')
      if (ended.has(key)) ended.get(key).times++
      else if (ended.size < mostDone) ended.set(key, { job, key, times: 1 })
    }
    fill(
      body,
      h(
        'section',
        { 'aria-labelledby': 'open' },
        h('h2', { id: 'open' }, `Under way (${open.length})`),
        open.length === 0 ? empty('Nothing runs.') : h('ul', { class: 'jobs' }, open.map(running))
      ),
      h(
        'section',
        { 'aria-labelledby': 'ended' },
        h('h2', { id: 'ended' }, 'Ended in the last 7 days'),
        ended.size === 0
          ? empty('None.')
          : table(
              'Jobs that have ended',
              ['What', 'Outcome', 'By', 'Ended', 'Took'],
              [...ended.values()].map(({ job, key, times }) => [
                [`${job.kind} of ${job.object}`, times > 1 && h('span', { class: 'faint' }, ` × ${times}`)],
                job.state === 'failed'
                  ? details(unfolded, key, h('span', { class: 'bad' }, job.message), () => reasons(job))
                  : job.message,
                job.by,
                moment(job.ended),
                duration(Date.parse(job.ended) - Date.parse(job.started ?? job.queued))
              ])
            )
      )
    )
  }

  const cancel = (name, job) =>
    confirm({
      title: `Cancel the ${name}?`,
      text: 'It is stopped, and what it has done so far is taken back or left out.',
      yes: 'Cancel the job',
      isGrave: true,
      does: () => read(`/config/status/${job.request_id}/_cancel`)
    })

  function running(job) {
    const name = `${job.kind} of ${job.object}`
    return h(
      'li',
      { 'data-id': job.request_id },
      h(
        'div',
        { class: 'job' },
        h('strong', {}, name),
        h('span', { class: 'faint' }, `${job.by} · ${job.state}`),
        h('span', { class: 'num percent' }, `${Math.round(job.progress * 100)} %`)
      ),
      h('progress', { max: 1, value: job.progress, 'aria-label': `${name}, progress` }),
      mayAct() && button('Cancel', () => cancel(name, job), { 'aria-label': `Cancel ${name}` })
    )
  }

  const end = events.on('job', job => {
    const before = jobs.get(job.request_id)
    jobs.set(job.request_id, job)
    const row = list.body.querySelector(`[data-id="${CSS.escape(job.request_id)}"]`)
    if (row && before?.state === job.state) {
      row.querySelector('progress').value = job.progress
      fill(row.querySelector('.percent'), `${Math.round(job.progress * 100)} %`)
    } else if (list.body.querySelector('section')) draw(list.body)
  })
  return list.until([end, events.on('reset', list.again)])
}

/** A part that is loaded when opened, and stays open while the list around it is redrawn. */
function details(open, key, summary, load) {
  const body = h('div', {})
  const toggled = async ({ target }) => {
    open[target.open ? 'add' : 'delete'](key)
    const failed = ({ message }) => h('p', { class: 'problem' }, message)
    if (target.open) fill(body, await load().catch(failed))
  }
  return h('details', { open: open.has(key), ontoggle: toggled }, h('summary', {}, summary), body)
}

const mostShown = 1000

/** Shows why a job failed: each reason of nodes once, with their names; else its last lines. */
async function reasons({ request_id: id }) {
  const { results, lines } = (await read(`/monitor/request/${id}`)).monitor.request[id]
  const failed = Object.entries(results ?? {}).filter(([, { state }]) => state === 'failed')
  const found = alike(failed.map(([name, { message }]) => [name, message]))
  const told = found.length > 0 ? found : lines.slice(-20)
  return h(
    'ul',
    { class: 'plain' },
    told.slice(0, 100).map(text => h('li', {}, text))
  )
}

/** Shows OS images, their tags, and which nodes run which pack. */
export function imagesView(place, { events }) {
  const list = loaded(
    place,
    'Images',
    async () => {
      const [images, tags] = await Promise.all([read('/config/osimage'), read('/config/osimagetag')])
      const names = Object.keys(images.config.osimage)
      const runs = await Promise.all(
        names.map(name => read(`/config/osimage/${encodeURIComponent(name)}/_running`))
      )
      return names.map((name, i) => ({
        ...images.config.osimage[name],
        running: runs[i].config.osimage[name].running,
        tags: Object.values(tags.config.osimagetag).filter(({ osimage }) => osimage === name)
      }))
    },
    (body, images) =>
      fill(
        body,
        images.length === 0 ? empty('There is no image yet.') : h('div', { class: 'cards' }, images.map(card))
      )
  )

  function card({ name, comment, kernelversion, imagefile, running, tags }) {
    const uses = [...cluster.nodes.values()].filter(({ osimage }) => osimage === name)
    const stale = uses.filter(node => node.stale)
    const all = Math.max(
      1,
      running.reduce((sum, { nodes }) => sum + nodes, 0)
    )
    const show = (text, words) => h('a', { href: linkTo(words) }, text)
    return h(
      'section',
      { class: 'card', 'aria-label': `Image ${name}` },
      h('h2', {}, name),
      comment && h('p', { class: 'faint' }, comment),
      terms([
        ['Kernel', kernelversion || '–'],
        ['Pack', h('span', { class: 'file' }, imagefile || 'not packed yet')],
        [
          'Nodes',
          [
            show(count(uses.length, 'node'), name),
            stale.length > 0 && [', ', show(`${number(stale.length)} outdated`, `${name} outdated`)]
          ]
        ]
      ]),
      tags.length > 0 && [
        h('h3', {}, 'Tags'),
        h(
          'ul',
          { class: 'plain' },
          tags.map(tag =>
            h(
              'li',
              {},
              h('strong', {}, tag.name),
              h('span', { class: 'file faint' }, ` ${tag.imagefile ?? 'no pack'}`)
            )
          )
        )
      ],
      running.some(({ nodes }) => nodes > 0) && [
        h('h3', {}, 'What runs'),
        h(
          'ul',
          { class: 'plain packs' },
          running
            .filter(({ nodes }) => nodes > 0)
            .map(({ pack, nodes, current }) => {
              const bar = h('span', { class: current ? 'part current' : 'part', 'aria-hidden': 'true' })
              bar.style.setProperty('--part', String(nodes / all))
              return h(
                'li',
                {},
                h('span', { class: 'num' }, count(nodes, 'node')),
                h('span', { class: 'file' }, pack),
                current && h('span', { class: 'faint' }, ' present'),
                bar
              )
            })
        )
      ]
    )
  }

  return list.until([
    events.on('change', ({ type }) => ['osimage', 'osimagetag', 'pack'].includes(type) && list.again()),
    events.on('reset', list.again),
    whenChanged(soon(3000, list.again))
  ])
}

const bins = 128
const numberOf = address => address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0)

/** Shows networks, with a drawing of their addresses. */
export function networksView(place, { events }) {
  const unfolded = new Set()
  const list = loaded(
    place,
    'Networks',
    async () => {
      const networks = Object.values((await read('/config/network')).config.network)
      return Promise.all(
        networks.map(async network => ({
          ...network,
          taken: (await read(`/config/network/${encodeURIComponent(network.name)}/_list`)).config.network[
            network.name
          ].taken
        }))
      )
    },
    (body, networks) =>
      fill(
        body,
        networks.length === 0
          ? empty('There is no network yet.')
          : h('div', { class: 'cards wide' }, networks.map(card))
      )
  )

  function card({
    name,
    network,
    gateway,
    dhcp,
    dhcp_range_begin: begin,
    dhcp_range_end: end,
    comment,
    taken
  }) {
    const [address, bits] = network.split('/')
    const all = 2 ** (32 - Number(bits))
    const first = Math.floor(numberOf(address) / all) * all
    const hosts = Math.max(all - 2, 1)
    const lent = dhcp && begin && end ? numberOf(end) - numberOf(begin) + 1 : 0
    const counts = new Array(Math.min(bins, all)).fill(0)
    const each = all / counts.length
    for (const { ipaddress } of taken) {
      const bin = Math.floor((numberOf(ipaddress) - first) / each)
      if (bin >= 0 && bin < counts.length) counts[bin]++
    }
    const said =
      `${number(taken.length)} of ${count(hosts, 'address').replace(/addresss$/, 'addresses')} taken ` +
      `(${share(taken.length / hosts)})${lent > 0 ? `, ${number(lent)} in the DHCP range` : ''}`
    return h(
      'section',
      { class: 'card', 'aria-label': `Network ${name}` },
      h('h2', {}, name, h('span', { class: 'faint' }, ` ${network}`)),
      comment && h('p', { class: 'faint' }, comment),
      strip(
        counts,
        each,
        lent > 0 ? [(numberOf(begin) - first) / all, (numberOf(end) - first + 1) / all] : undefined,
        said
      ),
      h('p', {}, said),
      h(
        'p',
        { class: 'faint' },
        [
          gateway && `gateway ${gateway}`,
          lent > 0 ? `DHCP ${begin} to ${end}` : dhcp ? 'DHCP without a range' : 'no DHCP'
        ]
          .filter(Boolean)
          .join(' · ')
      ),
      taken.length > 0 && details(unfolded, name, 'Who has which address', () => owners(name, taken))
    )
  }
  const owners = async (name, taken) => [
    table(
      `Addresses of network ${name}`,
      ['Address', 'Who has it'],
      taken
        .slice(0, mostShown)
        .map(({ ipaddress, device }) => [
          ipaddress,
          cluster.nodes.has(device)
            ? h('a', { href: `#/node/${encodeURIComponent(device)}` }, device)
            : device
        ])
    ),
    taken.length > mostShown &&
      empty(`And ${number(taken.length - mostShown)} more. Find shows who has an address.`)
  ]
  const share = part =>
    part < 0.001 && part > 0 ? 'less than 0.1 %' : `${(part * 100).toFixed(part < 0.1 ? 1 : 0)} %`

  return list.until([
    events.on('change', ({ type }) => ['network', 'switch', 'otherdev'].includes(type) && list.again()),
    events.on('reset', list.again)
  ])
}

/** Draws the addresses of a network as bars: the higher, the fuller. */
function strip(counts, each, range, label) {
  const make = (tag, attributes) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag)
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value))
    return element
  }
  const svg = make('svg', {
    class: 'strip',
    viewBox: '0 0 1000 40',
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': label
  })
  if (range)
    svg.append(
      make('rect', {
        class: 'lent',
        x: range[0] * 1000,
        y: 0,
        width: Math.max(2, (range[1] - range[0]) * 1000),
        height: 40
      })
    )
  const width = 1000 / counts.length
  for (const [i, n] of counts.entries()) {
    if (n === 0) continue
    const height = 6 + 34 * Math.min(1, n / each)
    svg.append(
      make('rect', { class: 'taken', x: i * width, y: 40 - height, width: Math.max(width - 0.8, 1), height })
    )
  }
  return svg
}

/** Shows the state of the services. */
export function servicesView(place, { events }) {
  const list = loaded(place, 'Services', readServices, (body, services) =>
    fill(
      body,
      h(
        'div',
        { class: 'cards' },
        Object.entries(services).map(([name, { status, reason, since }]) =>
          h(
            'section',
            { class: status === 'ok' ? 'card' : 'card bad-card', 'aria-label': `Service ${name}` },
            h('h2', {}, swatch(status === 'ok' ? 'fine' : 'failed'), ` ${name}`),
            h(
              'p',
              {},
              h('strong', {}, status === 'ok' ? 'well' : 'not well'),
              ' since ',
              moment(since),
              ' · ',
              ago(Date.parse(since))
            ),
            reason && h('p', {}, reason)
          )
        )
      )
    )
  )
  return list.until([
    events.on('service', list.again),
    events.on('takeover', list.again),
    events.on('reset', list.again)
  ])
}

/** Shows the audit log. */
export function auditView(place, { isAdmin, events }) {
  if (!isAdmin()) {
    fill(place, h('h1', {}, 'Audit log'), empty('An admin can read it.'))
    return () => {}
  }
  let by = location.hash.endsWith('?by=machines') ? 'machines' : 'users'
  const list = loaded(
    place,
    'Audit log',
    async () => (await read(`/monitor/audit?by=${by}`)).monitor,
    (body, { audit: lines, missing }) => {
      // Only if several controllers share the objects.
      const controllerOf = line => (missing ? [line.controller] : [])
      fill(
        body,
        (missing ?? []).map(({ controller, reason }) =>
          h('p', { class: 'faint' }, `The lines of controller ${controller} are not here: ${reason}.`)
        ),
        lines.length === 0
          ? empty('Nothing was changed yet.')
          : table(
              'Changes, the newest first',
              ['When', 'Who', 'From', ...controllerOf({ controller: 'Controller' }), 'What', 'Values'],
              lines.map(line => [
                moment(line.time),
                line.who,
                line.from,
                ...controllerOf(line),
                [line.action, line.type, line.names ?? line.name].filter(Boolean).join(' '),
                changesOf(line)
              ])
            )
      )
    }
  )
  place.querySelector('h1').after(
    h(
      'div',
      { class: 'tools' },
      h(
        'label',
        {},
        h('span', {}, 'Changes by'),
        h(
          'select',
          {
            onchange: event => {
              by = event.target.value
              history.replaceState(null, '', by === 'users' ? '#/audit' : `#/audit?by=${by}`)
              list.again()
            }
          },
          ['users', 'machines'].map(value => h('option', { value, selected: value === by }, value))
        )
      )
    )
  )
  return list.until([events.on('audit', list.again), events.on('reset', list.again)])
}
