// The yardstick of answers: node:http alone, which sends the bytes it is given and does nothing else.
import { createServer } from 'node:http'

process.once('message', body => {
  const headers = { 'Content-Type': 'text/plain; charset=utf-8', 'Content-Length': Buffer.byteLength(body) }
  const server = createServer((request, answer) => {
    request.resume()
    answer.writeHead(200, headers).end(body)
  })
  server.listen(0, '127.0.0.1', 4096, () => process.send({ port: server.address().port }))
})
