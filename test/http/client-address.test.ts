import type { Request } from 'express'
import { describe, expect, it } from 'vitest'
import { forwardedAddress, peerAddress } from '../../src/http/client-address.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function addressBy(clientOf: (request: Request) => string, forwarded?: string) {
  const app = appWith((it) =>
    it.get('/', (request, response) => void response.json(clientOf(request))),
  )
  const { at } = await serveHttp(app)
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded }
  return (await sendRequest(at, { headers: headers as Record<string, string> })).json
}

describe('forwardedAddress', () => {
  it.each([
    ['203.0.113.7', '203.0.113.7'],
    ['10.0.0.1, 203.0.113.7', '203.0.113.7'],
    ['2001:db8::1', '2001:db8::1'],
    ['"}{"forged', 'unknown'],
    ['', 'unknown'],
    [undefined, 'unknown'],
  ])('takes from %j the part that the service wrote: %s', async (header, address) => {
    expect(await addressBy(forwardedAddress, header)).toBe(address)
  })
})

describe('peerAddress', () => {
  it('does not believe what a caller says of itself', async () => {
    expect(await addressBy(peerAddress, '203.0.113.7')).toMatch(/127\.0\.0\.1$/)
  })
})
