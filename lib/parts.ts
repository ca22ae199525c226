// Most of the daemon's files, part by part. Node opens all files of one import at once, and the limit of open files may be
// low: who imports this before the rest needs fewer at once.
await import('./model/model.js')
await import('./services/services.js')
await import('./image/images.js')
await import('./api/routes.js')

export {}
