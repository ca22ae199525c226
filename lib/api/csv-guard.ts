/**
 * A spreadsheet takes a cell that begins so as a formula: the characters that OWASP lists, and their full-width forms. One
 * whose separator is not the comma sees a cell begin in the middle of a text, too.
 */
const formula = '(?=[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20])'
const isFormula = ['([;\\t|] *)', '(^)'].map(before => new RegExp(`${before}('*${formula})`, 'g'))
const isGuarded = ['(^)', '([;\\t|] *)'].map(before => new RegExp(`${before}'('*${formula})`, 'g'))

/** A cell of CSV that no spreadsheet runs: an apostrophe stands before what would be a formula (rules 12.4). */
export const guarded = (text: string) => isFormula.reduce((cell, found) => cell.replace(found, "$1'$2"), text)

/** Takes back `guarded`: gives the text as it was. */
export const unguarded = (cell: string) =>
  isGuarded.reduce((text, found) => text.replace(found, '$1$2'), cell)
