/** Says that a command was pointed at a state directory without a state, and what is most often the reason. */
export const notStarted = (state: string): string =>
  `${state}: no svcd has been started on this state directory; one that was started with --config or --set needs the ` +
  'same options here'
