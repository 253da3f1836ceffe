import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Listener, Session } from '@ngrok/ngrok'
import { onTestFinished } from 'vitest'
import { type PublicRequest, type PublicResponse, publicRequest } from './public-request.ts'
import { inTime, type RunningGateway } from './running-gateway.ts'

/** A device's service; answers with the body that it got. It is closed with the running test. */
export async function startDeviceService(
  answer: RequestListener = (request, response) => void request.pipe(response),
): Promise<string> {
  const server = createServer(answer)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

export interface Forwarded {
  readonly domain?: string
  readonly policy?: string
}

/** Opens an endpoint of the SDK that leads to a service. */
export function forward(
  session: Session,
  service: string,
  { domain = 'cam.site.test', policy }: Forwarded = {},
): Promise<Listener> {
  const builder = session.httpEndpoint().domain(domain)
  if (policy !== undefined) builder.trafficPolicy(policy)
  return inTime(builder.listenAndForward(service), 'bind')
}

/** A visitor's request over plain HTTP. */
export function visit(
  { addresses }: RunningGateway,
  { host = 'cam.site.test', ...more }: Partial<PublicRequest> = {},
): Promise<PublicResponse> {
  return publicRequest({ ingress: `http://127.0.0.1:${addresses.http.port}`, host, ...more })
}

/** What our agent says of itself when it authenticates. */
export const deviceMetadata = (instance: string, device_id = 'device-7') =>
  JSON.stringify({ device_id, instance })
