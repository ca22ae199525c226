/**
 * The beginning of a formula in a spreadsheet: the characters that OWASP lists, and their full-width forms.
 * With another separator than the comma, a cell begins in the middle of a text too.
 */
const formula = '(?=[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20])'
const isFormula = ['([;\\t|] *)', '(^)'].map(before => new RegExp(`${before}('*${formula})`, 'g'))
const isGuarded = ['(^)', '([;\\t|] *)'].map(before => new RegExp(`${before}'('*${formula})`, 'g'))

/** Puts an apostrophe before anything that a spreadsheet would run as a formula (rules 12.4). */
export const guarded = (text: string) => isFormula.reduce((cell, found) => cell.replace(found, "$1'$2"), text)

/** Undoes `guarded`. */
export const unguarded = (cell: string) =>
  isGuarded.reduce((text, found) => text.replace(found, '$1$2'), cell)
