/** What ends a command; the exit code is its kind (rules 14.3). */
export class Failure extends Error {
  constructor(
    readonly code: 1 | 2 | 3,
    message: string,
    /** The status that the controller refused with. */
    readonly status?: number
  ) {
    super(message)
  }
}

/** 1: the controller refuses, or what it was asked for has failed. */
export const refused = (message: string, status?: number) => new Failure(1, message, status)
/** 2: the command line is wrong. */
export const wrongUsage = (message: string) => new Failure(2, message)
/** 3: there is no controller, or what answers is none. */
export const noController = (message: string) => new Failure(3, message)
