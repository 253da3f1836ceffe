import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { request as httpsRequest } from 'node:https'

export interface PublicRequest {
  /** Origin of the ingress, such as `http://127.0.0.1:8080`; the port decides where to connect. */
  readonly ingress: string
  /** Where to connect instead of 127.0.0.1. */
  readonly address?: string
  /** The public host name that is asked for. */
  readonly host: string
  readonly path?: string | undefined
  readonly method?: string | undefined
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Buffer | undefined
  /** PEM of the CA that signed the ingress's certificate. */
  readonly ca?: string
  /** Certificate of the visitor. */
  readonly client?: { readonly certPem: string; readonly keyPem: string }
}

export interface PublicResponse {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  readonly text: string
}

/** One request from outside: connects to the loopback ingress but names a public host. */
export function publicRequest(options: PublicRequest): Promise<PublicResponse> {
  const {
    ingress,
    address = '127.0.0.1',
    host,
    path = '/',
    method = 'GET',
    headers = {},
    body,
    ca,
    client,
  } = options
  const { protocol, port } = new URL(ingress)
  const isTls = protocol === 'https:'
  const send = isTls ? httpsRequest : httpRequest
  return new Promise((resolve, reject) => {
    const request = send(
      {
        host: address,
        port,
        path,
        method,
        agent: false,
        headers: { ...headers, host: isTls && port !== '' ? `${host}:${port}` : host },
        ...(isTls && { servername: host, ca, cert: client?.certPem, key: client?.keyPem }),
      },
      (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          const bytes = Buffer.concat(chunks)
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: bytes,
            text: bytes.toString(),
          })
        })
      },
    )
    request.on('error', reject)
    request.end(body)
  })
}
