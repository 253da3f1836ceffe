import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { jsonBody } from '../../src/http/json-body.ts'
import { appWith, sendBytes, sendRequest, serveHttp } from '../helpers/serve-http.ts'

const JSON_TYPE = { 'content-type': 'application/json' }
const echo = () =>
  appWith((app) => app.post('/', jsonBody, (request, response) => void response.json(request.body)))

async function post(body: string | Buffer, headers: Record<string, string> = JSON_TYPE) {
  const { at } = await serveHttp(echo())
  return sendRequest(at, { method: 'POST', headers, body })
}

describe('jsonBody', () => {
  it.each([
    'application/json',
    'application/json; charset=utf-8',
    'Application/JSON;charset="UTF-8"',
  ])('reads %s', async (type) => {
    expect((await post('{"a":[1,"ü"]}', { 'content-type': type })).json).toEqual({ a: [1, 'ü'] })
  })

  it.each([
    ['no type', {}],
    ['text/plain', { 'content-type': 'text/plain' }],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['another charset', { 'content-type': 'application/json; charset=utf-16' }],
    ['a type that only begins alike', { 'content-type': 'application/json-seq' }],
    ['a compressed body', { ...JSON_TYPE, 'content-encoding': 'gzip' }],
  ])('refuses %s with 415', async (_title, headers) => {
    const { status, json } = await post('{}', headers as Record<string, string>)
    expect([status, json.code]).toEqual([415, 'not-json'])
  })

  it.each([
    ['', 'The body is empty.'],
    [' \n', 'The body is empty.'],
    ['{"a": 1,\n "b": }', 'The body stops being JSON in line 2, column 7.'],
    ['{"a": 1', 'The body stops being JSON in line 1, column 8.'],
    [`{'a': 1}`, 'The body stops being JSON in line 1, column 2.'],
    [Buffer.from([0x22, 0xff, 0x22]), 'The body is not UTF-8.'],
    ['['.repeat(40) + ']'.repeat(40), 'The body is nested deeper than 32.'],
    ['['.repeat(32_000) + ']'.repeat(32_000), 'The body is nested deeper than 32.'],
  ])('refuses %j', async (body, detail) => {
    const { status, json } = await post(body)
    expect([status, json.code, json.detail]).toEqual([400, 'invalid-json', detail])
  })

  it('accepts 64 KiB and refuses one byte more, whether or not the length was announced', async () => {
    const largest = `"${'x'.repeat(64 * 1024 - 2)}"`
    expect((await post(largest)).status).toBe(200)
    const { status, json } = await post(`${largest} `)
    expect([status, json.code]).toEqual([413, 'body-too-large'])

    const chunked = await post(`${largest} `, { ...JSON_TYPE, 'transfer-encoding': 'chunked' })
    expect(chunked.status).toBe(413)
  })

  it('refuses an announced length without waiting for the bytes', async () => {
    const { at } = await serveHttp(echo())
    const head =
      'POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n'
    const answer = await sendBytes(at, `${head}content-length: 99999999\r\n\r\n`)
    expect(answer).toMatch('HTTP/1.1 413 ')
  })

  it('takes a body that ends too early for the mistake of the caller', async () => {
    const { at, lines } = await serveHttp(echo())
    const head = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n'
    const socket = connect((at as { port: number }).port, '127.0.0.1').resume()
    socket.end(`${head}content-length: 10\r\n\r\n{`)
    await once(socket, 'close')
    expect(lines.filter((line) => line.level === 'error')).toEqual([])
  })
})
