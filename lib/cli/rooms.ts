// Imports most of the daemon part by part: Node opens all files of one import at once, and the limit of open
// files may be low. Import this before the rest.
await import('../model/model.js')
await import('../services/services.js')
await import('../image/images.js')
await import('../api/routes.js')

export {}
