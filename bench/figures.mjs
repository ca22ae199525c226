// Figures: the values of each round, beside a yardstick's, and what they say against a target.

/**
 * A row of the table. `rounds`: one value of each round; `beside`: the yardstick's, by which each is divided
 * unless it is `apart`. `target` is `{ atLeast }` or `{ atMost }`, with `ratio: true` if the ratio is meant,
 * and `always: true` if each round has to meet it. `less`: the smaller value is the better one. `more`:
 * further values of each round, for the file alone.
 */
export const figure = (what, unit, rounds, { beside, target, less = false, more } = {}) => ({
  what,
  unit,
  rounds: rounds.map(significant),
  less,
  ...(beside && { beside: { ...beside, rounds: beside.rounds.map(significant) } }),
  ...(target && { target }),
  ...(more && { more })
})

const significant = value => Number(value.toPrecision(5))

export const quantile = (values, q) => values.toSorted((a, b) => a - b)[Math.round((values.length - 1) * q)]

/** `{ median, least, most }` of values. */
export const spread = values => ({
  median: quantile(values, 0.5),
  least: quantile(values, 0),
  most: quantile(values, 1)
})

/**
 * A figure's value in each round as a multiple of its yardstick's in that round; undefined without a
 * yardstick.
 */
export const ratios = ({ rounds, beside }) =>
  beside && !beside.apart ? rounds.map((value, i) => value / beside.rounds[i]) : undefined

/**
 * Whether the median meets the target, or each round where the target is for `always`; undefined without one.
 */
export function met(figure) {
  if (figure.target === undefined) return undefined
  const { ratio, always, atLeast = -Infinity, atMost = Infinity } = figure.target
  const { median, least, most } = spread(ratio ? ratios(figure) : figure.rounds)
  return always ? least >= atLeast && most <= atMost : median >= atLeast && median <= atMost
}
