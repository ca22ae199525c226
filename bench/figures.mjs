// Figures: the values of each round, beside a yardstick's, and what they say against a target.

/**
 * A row of the table. `rounds`: one value of each round; `beside`: the yardstick's, by which each is divided. `target`
 * is `{ atLeast }` or `{ atMost }`, with `ratio: true` if the ratio is meant. `less`: the smaller value is the better one.
 */
export const figure = (what, unit, rounds, { beside, target, less = false } = {}) => ({
  what,
  unit,
  rounds: rounds.map(significant),
  less,
  ...(beside && { beside: { what: beside.what, rounds: beside.rounds.map(significant) } }),
  ...(target && { target })
})

const significant = value => Number(value.toPrecision(5))

export const quantile = (values, q) => values.toSorted((a, b) => a - b)[Math.round((values.length - 1) * q)]

/** `{ median, least, most }` of values. */
export const spread = values => ({
  median: quantile(values, 0.5),
  least: quantile(values, 0),
  most: quantile(values, 1)
})

/** A figure's value in each round as a multiple of its yardstick's in that round; undefined without a yardstick. */
export const ratios = ({ rounds, beside }) => beside && rounds.map((value, i) => value / beside.rounds[i])

/** Whether the median meets the target; undefined without one. */
export function met(figure) {
  if (figure.target === undefined) return undefined
  const { median } = spread(figure.target.ratio ? ratios(figure) : figure.rounds)
  return median >= (figure.target.atLeast ?? -Infinity) && median <= (figure.target.atMost ?? Infinity)
}
