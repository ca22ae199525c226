import { post, read, readTagged } from './api.js'
import { dryRunShown, short } from './changes.js'
import { notice } from './dialog.js'
import { button, count, fill, h, named } from './dom.js'
import { selected } from './select.js'

/** Variables have no field table. */
const ofVariable = { type: 'string', description: 'a variable; without a value it is removed' }
const pathOf = (type, name) => `/config/${type}/${encodeURIComponent(name)}`
const is = (schema, type) => [schema.type].flat().includes(type)
const note = text => h('p', { class: 'faint' }, text)
const bad = text => h('p', { class: 'problem' }, text)

let schemas
/** Returns the fields that a request may set, each with its schema, as the interface describes itself. */
const fieldsOf = type =>
  Object.entries(schemas[type].properties).filter(
    ([name, { readOnly, writeOnly }]) =>
      !(readOnly || writeOnly || name.startsWith('_') || /^(name|interfaces|variables)$/.test(name))
  )

/** Returns a value as it is typed; undefined for bytes that are no text. */
function textOf(schema, value) {
  if (value === null || value === undefined) return ''
  if (!schema.contentEncoding) return Array.isArray(value) ? value.join(', ') : String(value)
  try {
    const bytes = Uint8Array.from(atob(value), c => c.charCodeAt(0))
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** Returns the value of a text for a request; an empty one unsets the field. */
function typedValue(schema, text) {
  if (is(schema, 'array')) return text.split(/[\s,]+/).filter(Boolean)
  if (text === '') return null
  if (is(schema, 'boolean')) return text === 'true'
  if (is(schema, 'integer') && /^\d+$/.test(text)) return Number(text)
  if (!schema.contentEncoding) return text
  return btoa(Array.from(new TextEncoder().encode(text), byte => String.fromCharCode(byte)).join(''))
}

/** Makes the input of a field. `unset` is shown for a field without a value of its own. */
function inputOf(schema, text, unset, props) {
  const values = schema['x-values'] ?? (is(schema, 'boolean') && ['true', 'false'])
  const option = value => h('option', { value, selected: value === text }, value || unset || 'not set')
  if (values) return [h('select', props, ['', ...values].map(option))]
  const more = { ...props, placeholder: unset, spellcheck: false, autocomplete: 'off', value: text }
  if (schema.contentEncoding || text?.includes('\n'))
    return [h('textarea', { ...more, rows: 3, disabled: text === undefined })]
  if (!schema['x-refers']) return [h('input', more)]
  const names = h('datalist', { id: `${props.id}-names` })
  read(`/config/${schema['x-refers']}?fields=name`).then(
    ({ config }) => fill(names, Object.keys(Object.values(config)[0]).map(option)),
    () => {}
  )
  return [h('input', { ...more, list: names.id }), names]
}

/**
 * Runs the dry run of what is typed, a moment after the last key, and shows it in `place`. `request` returns
 * path and body, or undefined if nothing is changed; `settled` gets the error, and returns whether to save.
 * `etagOf` returns the entity tag of what the reader sees.
 */
function dryRuns(place, request, settled, etagOf) {
  let turn = 0
  let timer
  let ready
  const run = async mine => {
    const asked = request()
    if (!asked) return fill(place, note('Nothing is changed yet.'))
    try {
      const answer = await post(`${asked.path}?dryrun=yes`, asked.body)
      const isFine = await settled()
      if (mine !== turn) return
      fill(place, dryRunShown(answer))
      if (isFine) ready = { ...asked, mark: answer.mark, etag: etagOf() }
    } catch (error) {
      if (mine === turn) fill(place, bad(settled(error) ? error.message : 'It is refused: see the field.'))
    }
  }
  return {
    changed() {
      ready = undefined
      clearTimeout(timer)
      timer = setTimeout(run, 350, ++turn)
    },
    /** Makes exactly the change whose dry run is shown, or none. Throws Refused. */
    async save() {
      if (!ready) throw new Error('There is nothing to save: look at the dry run first.')
      await post(`${ready.path}?expect=${ready.mark}`, ready.body, ready.etag)
    }
  }
}

/**
 * Shows a node, a group, or fields of the selected nodes (type `nodes`) as a form, with the dry run beside
 * it. Returns a function that ends the view.
 */
export function editView(place, [type, name], { isAdmin, events }) {
  const many = type === 'nodes' ? [...selected] : undefined
  const title = many ? `Edit ${count(many.length, 'node')}` : `Edit ${type} ${name}`
  const home = type === 'node' ? `#/node/${encodeURIComponent(name)}` : '#/cluster'
  const back = h('p', { class: 'back' }, h('a', { href: home }, '‹ Back'))
  if (!isAdmin() || !(many ? many.length > 0 : ['node', 'group'].includes(type))) {
    fill(place, back, note('An admin can edit a node, a group, or selected nodes.'))
    return () => {}
  }
  const problem = h('p', { class: 'problem', role: 'alert' })
  const dry = h('div', { role: 'status' })
  const form = h('div', {}, many && note(named(many)))
  const save = h('button', { class: 'main' }, 'Save')
  const rows = new Map()
  let isOver = false
  let now
  let above
  let etag
  const runs = dryRuns(dry, request, settled, () => etag)
  const beside = h('section', { 'aria-label': 'Dry run' }, h('h2', {}, 'Dry run'), dry, problem, save)
  fill(place, back, h('h1', {}, title), h('form', { class: 'two edit', onsubmit }, form, beside))

  async function load() {
    const answer = await readTagged(pathOf(type, name))
    const doc = answer.body.config[type][name]
    etag = answer.etag
    const { config } = await read(doc.group ? pathOf('group', doc.group) : '/config/cluster')
    above = config.cluster ?? config.group[doc.group]
    return doc
  }

  /** Returns what the object sets itself, as texts by the keys of rows. */
  function ownTexts(doc) {
    const own = (key, text, source = type) => [key, source === type ? text : '']
    return new Map([
      ...fieldsOf(type).map(([key, schema]) => own(key, textOf(schema, doc[key]), doc[`_${key}_source`])),
      ...doc.interfaces.flatMap(({ interface: on, ...values }) =>
        Object.entries(values).map(([key, value]) => own(`${on}.${key}`, textOf({}, value)))
      ),
      ...Object.entries(doc.variables).map(([key, value]) =>
        own(`variables.${key}`, value, doc._variables_source[key])
      )
    ])
  }

  /** Describes the value that counts if the object has none of its own. */
  function inherited(key, schema) {
    if (now[`_${key}_source`] === undefined) return ''
    const text = textOf(schema, above[key] ?? schema.default) ?? 'bytes'
    return `${short(text)} (${above[`_${key}_source`] ?? (key in above ? 'cluster' : 'default')})`
  }

  /** Makes the row of a field; without `own` its value counts as typed, whatever it is. */
  function rowOf(key, schema, unset, own) {
    const id = `edit-${key}`
    const wrong = h('p', { class: 'problem', id: `${id}-wrong`, role: 'alert' })
    const about = h(
      'p',
      { class: 'faint', id: `${id}-about` },
      unset && `Inherited: ${unset}. `,
      schema.description
    )
    const props = { id, oninput: changed, 'aria-describedby': `${id}-about ${id}-wrong` }
    const inputs = inputOf(schema, own?.has(key) ? own.get(key) : '', unset, props)
    rows.set(key, { schema, input: inputs[0], wrong, own: own?.get(key) ?? '', was: own && inputs[0].value })
    const label = h('label', { for: id }, key.replace(/^.*\./, ''))
    return h('div', { class: 'field' }, label, inputs, about, wrong)
  }

  const part = (title, ...content) => h('fieldset', {}, h('legend', {}, title), ...content)

  /** Lets one add a variable, and of many nodes a field. */
  function adder(own) {
    const added = h('div', {})
    const add = (key, schema) => {
      const row = schema ? key : `variables.${key}`
      if (/^\w{1,63}$/.test(key) && !rows.has(row)) added.append(rowOf(row, schema ?? ofVariable, '', own))
      rows.get(row)?.input.focus()
      changed()
    }
    const line = (id, label, ...inputs) =>
      h('div', { class: 'field' }, h('label', { for: id }, label), inputs)
    const fields = Object.fromEntries(fieldsOf('node').filter(([key]) => key !== 'macaddr'))
    const options = ['', ...Object.keys(fields)].map(value => h('option', { value }, value || 'choose'))
    const onchange = ({ target }) => target.value && add(target.value, fields[target.value])
    const input = h('input', { id: 'edit-more', autocomplete: 'off' })
    return [
      added,
      many && line('edit-which', 'Field', h('select', { id: 'edit-which', onchange }, options)),
      line(
        'edit-more',
        'One more variable',
        input,
        button('Add', () => add(input.value))
      )
    ]
  }

  function draw(doc) {
    now = doc
    rows.clear()
    const own = ownTexts(doc)
    const row = ([key, schema]) => rowOf(key, schema, inherited(key, schema), own)
    const entries = ({ interface: on, ...values }) =>
      Object.keys(values).map(key => rowOf(`${on}.${key}`, schemas.interface.properties[key], '', own))
    const variable = key =>
      rowOf(
        `variables.${key}`,
        ofVariable,
        doc._variables_source[key] === type ? '' : short(doc.variables[key]),
        own
      )
    fill(
      form,
      part('Settings', fieldsOf(type).map(row)),
      doc.interfaces.map(one => part(`Interface ${one.interface}`, entries(one))),
      part('Variables', Object.keys(doc.variables).map(variable), adder(own))
    )
    changed()
  }

  function request() {
    const body = {}
    for (const [key, { schema, input, was }] of rows) {
      if (input.value === was) continue
      const value = typedValue(schema, input.value)
      const [, on, field] = /^(.*)\.([^.]*)$/.exec(key) ?? []
      if (on === undefined) body[key] = value
      else if (on === 'variables') body.variables = { ...body.variables, [field]: value }
      else body.interfaces = [...(body.interfaces ?? []), { interface: on, [field]: value }]
    }
    if (Object.keys(body).length === 0) return undefined
    if (!many) return { path: pathOf(type, name), body }
    return { path: '/config/node/_set', body: { nodes: many.join(','), fields: body } }
  }

  function changed() {
    fill(problem)
    for (const { wrong, input } of rows.values()) {
      if (!wrong.querySelector('button')) fill(wrong)
      input.removeAttribute('aria-invalid')
    }
    runs.changed()
  }

  /** Shows a refusal at its field, else what others have changed; returns whether one may go on. */
  function settled(error) {
    if (!error) return many ? true : othersChanged()
    const [, on, field] = /(?:interface "?([\w.-]+)"?.*)?field "(\w+)"/.exec(error.message) ?? []
    const edited = [...rows.values()].filter(({ input, was }) => input.value !== was)
    const row = rows.get(`${on}.${field}`) ?? rows.get(field) ?? (edited.length === 1 && edited[0])
    if (!row) return true
    row.input.setAttribute('aria-invalid', 'true')
    fill(row.wrong, error.message)
    return false
  }

  /** Takes over what somebody else has changed; where it is edited here, the reader decides. */
  async function othersChanged() {
    const own = ownTexts(await load())
    for (const [key, row] of rows) {
      const { input, wrong, own: before } = row
      const text = own.get(key) ?? ''
      const mine = input.value
      const take = value => {
        input.value = text
        // The input may show a text in another form.
        Object.assign(row, { own: text, was: input.value })
        if (value !== undefined) input.value = value
        fill(wrong)
      }
      const choose = value => () => {
        take(value)
        input.focus()
        changed()
      }
      if (text === before) continue
      if (mine === row.was) take()
      else
        fill(
          wrong,
          `Somebody else has changed it from ${short(before)} to ${short(text)}. `,
          ...[button('Keep mine', choose(mine)), button('Take theirs', choose())]
        )
    }
    return ![...rows.values()].some(({ wrong }) => wrong.hasChildNodes())
  }

  async function onsubmit(event) {
    event.preventDefault()
    save.disabled = true
    try {
      await runs.save()
      notice(`${title}: saved.`)
      location.hash = home
    } catch (error) {
      changed()
      failed(error)
    }
    save.disabled = false
  }

  const failed = error => isOver || fill(problem, error.message)
  const begin = async () => {
    schemas ??= (await read('/openapi.json')).components.schemas
    if (many) fill(form, note(named(many)), part('Fields', adder()))
    else {
      const doc = await load()
      if (!isOver) draw(doc)
    }
  }
  begin().catch(failed)
  const again = of => of.name === name && now && othersChanged().then(runs.changed, failed)
  const ends = [
    events.on('node', node => type === 'node' && again(node)),
    events.on('change', change => change.type === type && again(change))
  ]
  return () => {
    isOver = true
    for (const end of ends) end()
  }
}
