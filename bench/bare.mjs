// The yardstick of answers: node:http alone, which sends the bytes it is given and does nothing else. It is
// sent what to answer by the beginning of the path, the first that fits; a POST is answered with 204 when its
// body has come.
import { createServer } from 'node:http'

process.on('message', answers => {
  const given = answers.map(([begin, body]) => [
    begin,
    body,
    { 'Content-Type': 'text/plain; charset=utf-8', 'Content-Length': Buffer.byteLength(body) }
  ])
  const server = createServer((request, answer) => {
    if (request.method === 'POST') {
      request.resume().on('end', () => answer.writeHead(204).end())
      return
    }
    const [, body, headers] = given.find(([begin]) => request.url.startsWith(begin))
    answer.writeHead(200, headers).end(body)
  })
  server.listen(0, '127.0.0.1', 4096, () => process.send({ port: server.address().port }))
})
