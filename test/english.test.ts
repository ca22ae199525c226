import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import ts from 'typescript'
import { checkout } from './support/programs.js'

// docs/glossary.md and the limits of CONTRIBUTING.md, held by the code.

const COLUMNS = 110

const filesBelow = (directory: string, ending: RegExp): string[] =>
  readdirSync(join(checkout, directory), { recursive: true, encoding: 'utf8' })
    .filter(name => ending.test(name))
    .map(name => join(directory, name))
    .sort()
const textOf = (name: string) => readFileSync(join(checkout, name), 'utf8')

const code = filesBelow('lib', /\.ts$/)
const all = [...code, ...['bench', 'build', 'page'].flatMap(name => filesBelow(name, /\.(ts|mjs|js)$/))]

/** A comment: where it begins, and its text without stars and slashes. */
interface Comment {
  readonly line: number
  text: string
}

const parsed = new Map<string, ts.SourceFile>()
/** A file of the checkout, parsed once. */
function sourceOf(name: string): ts.SourceFile {
  const file = parsed.get(name) ?? ts.createSourceFile(name, textOf(name), ts.ScriptTarget.ES2022)
  parsed.set(name, file)
  return file
}

const commentsIn = new Map<string, readonly Comment[]>()
/** The comments of a file of the checkout. */
function commentsOf(name: string): readonly Comment[] {
  const comments = commentsIn.get(name) ?? allComments(sourceOf(name))
  commentsIn.set(name, comments)
  return comments
}

function allComments(file: ts.SourceFile): readonly Comment[] {
  const { text } = file
  const found = new Map<number, Comment>()
  const take = (ranges: readonly ts.CommentRange[] | undefined) => {
    for (const { pos, end } of ranges ?? [])
      found.set(pos, {
        line: file.getLineAndCharacterOfPosition(pos).line + 1,
        text: text
          .slice(pos, end)
          .replace(/^\/\*\*?|\*\/$/g, '')
          .replace(/^\s*(\/\/|\*)[ ]?/gm, '')
          .trim()
      })
  }
  const visit = (node: ts.Node) => {
    take(ts.getLeadingCommentRanges(text, node.getFullStart()))
    take(ts.getTrailingCommentRanges(text, node.getEnd()))
    for (const child of node.getChildren(file)) visit(child)
  }
  visit(file)
  // Consecutive line comments are one comment.
  const comments: Comment[] = []
  for (const [, one] of [...found].sort(([a], [b]) => a - b)) {
    const last = comments.at(-1)
    if (last && last.line + last.text.split('\n').length === one.line) last.text += `\n${one.text}`
    else comments.push({ ...one })
  }
  return comments
}

/** A clause that stands where a subject should: "Who keeps …", "What is told …", "Those that …". */
export const headless = /^(Who(ever|m|se)?|What(ever)?|Those|That which|That (is|was|has|are)|Since when)\b/

t.test('the forms that are refused are seen', t => {
  const text = `/** Who keeps this. */
const a = 1
// A sentence.
// What is told, comes later.
const b = 2

// that one is seen
`
  t.same(
    allComments(ts.createSourceFile('x.ts', text, ts.ScriptTarget.ES2022)).map(({ line, text }) => [
      line,
      text
    ]),
    [
      [1, 'Who keeps this.'],
      [3, 'A sentence.\nWhat is told, comes later.'],
      [7, 'that one is seen']
    ]
  )
  t.match('What is told.', headless)
  t.notMatch('Whole files are sent at once.', headless)
  t.end()
})

t.test('comments have a subject', t => {
  const wrong: string[] = []
  for (const name of all)
    for (const { line, text } of commentsOf(name)) {
      if (headless.test(text)) wrong.push(`${name}:${line} begins with a clause: ${text.slice(0, 60)}`)
      if (/\bthat one\b(?! \w+s\b)/i.test(text))
        wrong.push(`${name}:${line} "that one": ${text.slice(0, 60)}`)
    }
  t.same(wrong, [])
  t.end()
})

t.test('names in comments are names of the code', t => {
  const names = new Set<string>()
  for (const name of code) {
    const scanner = ts.createScanner(ts.ScriptTarget.ES2022, true, ts.LanguageVariant.Standard, textOf(name))
    for (let kind = scanner.scan(); kind !== ts.SyntaxKind.EndOfFileToken; kind = scanner.scan())
      for (const [word] of scanner.getTokenText().matchAll(/#?[\w$]+/g)) names.add(word)
  }
  // A member, a private member, or a name in camel case: other words in back-ticks may be anything.
  const isName = /^(?:[A-Z]\w+\.)?(#\w+|[a-z]+[A-Z]\w*)$/
  const wrong = code.flatMap(name =>
    commentsOf(name).flatMap(({ line, text }) =>
      [...text.matchAll(/`([^`\n]+)`/g)].flatMap(([, word = '']) => {
        const member = isName.exec(word)?.[1]
        return member && !names.has(member) ? [`${name}:${line} \`${word}\` is not in the code`] : []
      })
    )
  )
  t.same(wrong, [])
  t.end()
})

t.test(`no line of the code has more than ${COLUMNS} columns`, t => {
  // A regular expression cannot be split; a line of shell in a text is one line.
  const isWhole = (line: string) => /^\s*\/(?!\*).*\/[a-z]*(\.exec\()?,?$|COMPREPLY/.test(line)
  const wrong = code.flatMap(name =>
    textOf(name)
      .split('\n')
      .flatMap((line, at) =>
        line.length > COLUMNS && !isWhole(line) ? [`${name}:${at + 1} ${line.length}`] : []
      )
  )
  t.same(wrong, [])
  t.end()
})

/** The glossary's rows: a term, and the words that are not used for it in exported names. */
const glossary = textOf('docs/glossary.md')
  .split('\n')
  .flatMap(line => {
    const [, term, , not] = line.split('|').map(cell => cell.trim())
    return term && not !== undefined && !/^(term|-+)$/.test(term) ? [{ term, not }] : []
  })
  .map(({ term, not }) => ({ term, words: [...not.matchAll(/`(\w+)`/g)].map(([, word = '']) => word) }))

/** The words of a name: `takenByMac` → taken, by, mac. */
const wordsOf = (name: string) =>
  name.split(/(?<=[a-z0-9])(?=[A-Z])|_|(?<=[A-Z])(?=[A-Z][a-z])/).map(word => word.toLowerCase())

function exportedNames(name: string): string[] {
  const file = sourceOf(name)
  const isExported = (node: ts.Node) =>
    ts.canHaveModifiers(node) &&
    (ts.getModifiers(node) ?? []).some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)
  return file.statements.filter(isExported).flatMap(statement => {
    if (ts.isVariableStatement(statement))
      return statement.declarationList.declarations.map(({ name }) => name.getText(file))
    const { name } = statement as { name?: ts.Identifier }
    return name ? [name.text] : []
  })
}

t.test('one concept has one name', t => {
  t.ok(glossary.length >= 50, `docs/glossary.md has ${glossary.length} terms`)
  t.same(wordsOf('takenByMAC'), ['taken', 'by', 'mac'])
  const refused = new Map(glossary.flatMap(({ term, words }) => words.map(word => [word, term] as const)))
  const wrong: string[] = []
  for (const name of code) {
    const file = name.split('/').at(-1)?.replace('.ts', '').split('-') ?? []
    for (const exported of [...exportedNames(name), file.join('_')])
      for (const word of wordsOf(exported)) {
        const term = refused.get(word)
        if (term !== undefined)
          wrong.push(`${name}: ${exported}: "${word}" is called ${term} (docs/glossary.md)`)
      }
  }
  t.same(wrong, [])
  t.end()
})
