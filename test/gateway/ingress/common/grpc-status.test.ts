import { describe, expect, it } from 'vitest'
import { grpcFields } from '../../../../src/gateway/ingress/common/local-reply.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { startScriptedService } from '../../../helpers/raw-http.ts'

async function callOf(type: string, authority = 'localhost') {
  const { port } = await startScriptedService(
    'HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone',
  )
  const session = await connectHttp2(await startIngressSite({ service: port }))
  const headers = {
    ':method': 'POST',
    ':authority': authority,
    'content-type': type,
    te: 'trailers',
  }
  return await answerOf(openStream(session, headers))
}

describe('an error for a call of gRPC', () => {
  it.each(['application/grpc', 'application/grpc+proto', 'Application/gRPC; a=b'])(
    'is a status of gRPC: %s',
    async (type) => {
      const { status, headers, body } = await callOf(type)
      expect(status).toBe(200)
      expect(headers).toMatchObject({
        'content-type': 'application/grpc',
        'grpc-status': '14',
        'grpc-message': 'No endpoint is online at this address. (ERR_NGROK_3200)',
        'ngrok-error-code': 'ERR_NGROK_3200',
      })
      expect(body).toHaveLength(0)
    },
  )

  it.each(['application/grpc-web', 'application/json', 'text/application/grpc'])(
    'is one of HTTP for others: %s',
    async (type) => {
      const { status, headers } = await callOf(type)
      expect(status).toBe(404)
      expect(headers['grpc-status']).toBeUndefined()
    },
  )

  it('is left as it is when the device says it', async () => {
    const { status, body } = await callOf('application/grpc', 'a.test')
    expect([status, body.toString()]).toEqual([404, 'gone'])
  })

  it.each([
    [400, '13'],
    [401, '16'],
    [403, '7'],
    [404, '14'],
    [429, '14'],
    [503, '14'],
    [418, '2'],
  ])('%i is %s', (status, code) => {
    const fields = grpcFields({ status, fields: [], body: '' })
    expect(fields[fields.indexOf('grpc-status') + 1]).toBe(code)
  })

  it('has a message in ASCII, of bounded length, and when to try again', () => {
    const fields = ['Retry-After', '5', 'content-type', 'text/plain', 'x-own', '1']
    expect(grpcFields({ status: 503, fields, body: `100 %: näh\n${'x'.repeat(9_000)}` })).toEqual([
      'content-type',
      'application/grpc',
      'grpc-status',
      '14',
      'grpc-message',
      `100 %25: n%C3%A4h%0A${'x'.repeat(245)}`,
      'retry-after',
      '5',
    ])
  })
})
