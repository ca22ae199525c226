/** A spreadsheet takes what begins so as a formula: the characters that OWASP lists, and their full-width forms. */
const formula = '[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]'
const isFormula = new RegExp(`^'*${formula}`)
const isGuarded = new RegExp(`^'+${formula}`)

/** A cell of CSV that no spreadsheet runs: an apostrophe stands before what would be a formula (rules 12.4). */
export const guarded = (text: string) => (isFormula.test(text) ? `'${text}` : text)

/** Takes back `guarded`: gives the text as it was. */
export const unguarded = (text: string) => (isGuarded.test(text) ? text.slice(1) : text)
