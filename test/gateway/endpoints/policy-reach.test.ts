// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it, onTestFinished } from 'vitest'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { parseConfig } from '../../../src/config.ts'
import { startEchoUpstream } from '../../helpers/echo-upstream.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

const HOST = 'front.site.test'

/** What the policy of an endpoint gets from a server on the gateway's own machine. */
async function askFromPolicy(allow: string, port: number): Promise<string> {
  const { outboundAllow } = parseConfig({ GATEWAY_OUTBOUND_ALLOW: allow }).gateway
  const { gateway, addresses } = await startGateway({ outboundAllow })
  const trafficPolicy = JSON.stringify({
    on_http_request: [
      {
        actions: [
          { type: 'http-request', config: { url: `http://127.0.0.1:${port}/` } },
          {
            type: 'custom-response',
            config: {
              body: "${actions.ngrok.http_request.error.code == '' ? actions.ngrok.http_request.res.body : actions.ngrok.http_request.error.message}",
            },
          },
        ],
      },
    ],
  })
  const request = { url: `https://${HOST}`, trafficPolicy }
  await gateway.parts.cloudEndpoints.create(request, { isGranted: true })
  const ingress = `http://${formatListenAddress(addresses.http)}`
  return (await publicRequest({ ingress, host: HOST })).text
}

describe('what policies reach on a gateway', () => {
  it('is what GATEWAY_OUTBOUND_ALLOW lists, and nothing without it', async () => {
    const upstream = await startEchoUpstream('inside')
    onTestFinished(() => upstream.close())
    const { port } = upstream
    expect(JSON.parse(await askFromPolicy(`127.0.0.1:${port}`, port)).name).toBe('inside')
    for (const allow of ['', `127.0.0.1:${port + 1}`, '0.0.0.0/0, 10.0.0.0/8']) {
      expect(await askFromPolicy(allow, port)).toContain('GATEWAY_OUTBOUND_ALLOW')
    }
  })
})
