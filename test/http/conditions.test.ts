import { describe, expect, it } from 'vitest'
import { readConditions } from '../../src/http/conditions.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

const TAG = '"5c1f"'

/** `etag` null: there is nothing yet. */
async function statusOf(headers: Record<string, string>, etag: string | null = TAG) {
  const app = appWith((it) =>
    it.put('/', (request, response) => {
      readConditions(request).require(etag ?? undefined)
      response.end('done')
    }),
  )
  const { at } = await serveHttp(app)
  const { status, json } = await sendRequest(at, { method: 'PUT', headers })
  return json ? `${status} ${json.code}` : String(status)
}

const FAILED = '412 precondition-failed'

describe('readConditions', () => {
  it.each([
    [{}, '200'],
    [{ 'if-match': TAG }, '200'],
    [{ 'if-match': `"other", ${TAG}` }, '200'],
    [{ 'if-match': '*' }, '200'],
    [{ 'if-match': '"other"' }, FAILED],
    [{ 'if-match': `W/${TAG}` }, FAILED],
    [{ 'if-none-match': '*' }, FAILED],
    [{ 'if-none-match': TAG }, FAILED],
    [{ 'if-none-match': `W/${TAG}` }, FAILED],
    [{ 'if-none-match': '"other"' }, '200'],
    [{ 'if-match': TAG, 'if-none-match': '"other"' }, '200'],
    [{ 'if-match': TAG, 'if-none-match': TAG }, FAILED],
  ])('for %j answers %s', async (headers, expected) => {
    expect(await statusOf(headers as Record<string, string>)).toBe(expected)
  })

  it.each([
    [{ 'if-match': '*' }, FAILED],
    [{ 'if-match': TAG }, FAILED],
    [{ 'if-none-match': '*' }, '200'],
    [{ 'if-none-match': TAG }, '200'],
  ])('where there is nothing, for %j answers %s', async (headers, expected) => {
    expect(await statusOf(headers as Record<string, string>, null)).toBe(expected)
  })

  it.each(['', '5c1f', '"5c1f', '"a" "b"', '"a",', Array(21).fill('"a"').join(', ')])(
    'refuses %j as no entity tags',
    async (tags) => {
      expect(await statusOf({ 'if-match': tags })).toBe('400 invalid-request')
    },
  )
})
