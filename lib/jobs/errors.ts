/** It cannot be done now (shutting down, too many wait, no room on disk): 503 to a client; nothing was changed. */
export class JobsUnavailableError extends Error {
  override readonly name = 'JobsUnavailableError'
}

/** A job did not end by itself: somebody cancelled it, or the daemon stopped. */
export class JobStoppedError extends Error {
  override readonly name = 'JobStoppedError'
}
