import { describe, expect, it } from 'vitest'
import { fieldsOf } from '../../../helpers/raw-http.ts'
import { startHandSite } from '../hand-device.ts'

const get = (more = '') => `GET / HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`

describe('an answer of the gateway', () => {
  const nobody = (more = '') => get(more).replace('a.test', 'nobody.test')

  it.each([
    ['a page for who asks for one', 'Accept: text/html\r\n', 'text/html; charset=utf-8'],
    ['a page whatever the case of that', 'aCCEPT: text/html\r\n', 'text/html; charset=utf-8'],
    ['a text for others', 'Accept: */*\r\n', 'text/plain; charset=utf-8'],
    ['a text for who says nothing', '', 'text/plain; charset=utf-8'],
    [
      'a page, whatever has that for a value',
      'X: accept\r\nAccept: text/html\r\n',
      'text/html; charset=utf-8',
    ],
    ['a text where another field says html', 'X-Y: text/html\r\n', 'text/plain; charset=utf-8'],
  ])('is %s', async (_what, more, type) => {
    const { visit, read } = await startHandSite()
    expect(fieldsOf(await read(await visit(nobody(more))))['content-type']).toBe(type)
  })

  it('keeps the connection of who wants that', async () => {
    const { visit, read } = await startHandSite()
    const kept = await visit(nobody() + nobody())
    expect((await read(kept)).match(/HTTP\/1\.1 404/g)).toHaveLength(2)
    expect(kept.ending).toBeUndefined()
    const closed = await visit(nobody('Connection: close\r\n'))
    expect(fieldsOf(await read(closed)).connection).toBe('close')
    expect(closed.ending).toBe('end')
  })

  it('ends the connection when the gateway stops', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(get())
    for (const connection of site.connections) connection.stop()
    device.last.end()
    expect(fieldsOf(await read(client)).connection).toBe('close')
    expect(client.ending).toBe('end')
  })
})
