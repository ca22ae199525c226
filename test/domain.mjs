// Stands in for async-hook-domain, by which tap finds the test of an error that nobody catches. That package
// is told of the end of every promise, which costs a test a fifth of its time; this storage is not.
import { AsyncLocalStorage } from 'node:async_hooks'

const domains = new AsyncLocalStorage()

const report = event => error => {
  let domain = domains.getStore()
  while (domain?.isOver) domain = domain.parent
  if (!domain) throw error
  domain.onerror(error, event)
}

export class Domain {
  isOver = false

  constructor(onerror) {
    this.onerror = onerror
    this.parent = domains.getStore()
    domains.enterWith(this)
  }

  destroy() {
    this.isOver = true
  }
}

for (const event of ['uncaughtException', 'unhandledRejection']) process.on(event, report(event))
