import { createServer, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { siteFor, VISITORS } from '../../helpers/three-visitors.ts'

const HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
const LAST = '0\r\n\r\n'

/** A service whose answer comes in one piece. */
const serviceOf = (answer: string) =>
  createServer((socket) => {
    socket.once('data', () => socket.write(answer))
  })

/** nginx and curl read these as well. */
const READ: readonly (readonly [what: string, body: string])[] = [
  ['blanks behind the size', `5  \r\nhello\r\n${LAST}`],
  ['an extension behind a blank', `5 ;ext\r\nhello\r\n${LAST}`],
  ['leading zeros', `00005\r\nhello\r\n${LAST}`],
  ['bare LF', '5\nhello\n0\n\n'],
  ['a long extension', `5;${'x'.repeat(1_000)}\r\nhello\r\n${LAST}`],
]

const REFUSED: readonly (readonly [what: string, body: string])[] = [
  ['a hexadecimal prefix', `0x5\r\nhello\r\n${LAST}`],
  ['a minus', `-1\r\nhello\r\n${LAST}`],
  ['a plus', `+5\r\nhello\r\n${LAST}`],
  ['a blank before the size', ` 5\r\nhello\r\n${LAST}`],
  ['no size', `\r\nhello\r\n${LAST}`],
  ['words', `hello\r\n${LAST}`],
  ['a size of 13 digits', `0000000000005\r\nhello\r\n${LAST}`],
  ['a chunk of 2 GiB', '80000000\r\nhello'],
  ['a chunk of 16 EiB and some', `10000000000000005\r\nhello\r\n${LAST}`],
  ['an extension that does not end', `5;${'x'.repeat(1_100)}\r\nhello\r\n${LAST}`],
  ['more content than announced', `5\r\nhello!\r\n${LAST}`],
  ['a second chunk that is none', `5\r\nhello\r\n0x5\r\nhello\r\n${LAST}`],
  ['a length behind the body', '0\r\nContent-Length: 5\r\n\r\n'],
]

describe.each(VISITORS)('a visitor of %s', (_name, open) => {
  it.each(READ)('gets the body of a device with %s', async (_what, body) => {
    const visitor = open(await siteFor(serviceOf(HEAD + body)))
    expect(await visitor.ask()).toMatchObject({ status: 200, text: 'hello', end: 'whole' })
  })

  it.each(REFUSED)('gets 502 for a body with %s', async (_what, body) => {
    const visitor = open(await siteFor(serviceOf(HEAD + body)))
    const { status, headers, end } = await visitor.ask()
    expect([status, headers['ngrok-error-code'], end]).toEqual([502, 'ERR_NGROK_3004', 'whole'])
  })

  it.each(REFUSED)('sees a break where the head came before %s', async (_what, body) => {
    const server = serviceOf(HEAD)
    const services: Socket[] = []
    server.on('connection', (socket) => services.push(socket))
    const visitor = open(await siteFor(server))
    const onHead = () => void services[0]?.write(body)
    expect(await visitor.ask({ onHead })).toMatchObject({ status: 200, end: 'broken' })
  })

  it('sees a break where the service ends before the last empty line', async () => {
    const server = createServer((socket) => {
      socket.once('data', () => socket.end(`${HEAD}5\r\nhello\r\n0\r\n`))
    })
    const visitor = open(await siteFor(server))
    expect(await visitor.ask()).toMatchObject({ status: 200, text: 'hello', end: 'broken' })
  })
})
