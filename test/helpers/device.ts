import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Program } from './program.ts'
import { type PublicResponse, publicRequest } from './public-request.ts'
import { lastingAddress } from './some-ports.ts'

/** The line that `up --json` prints. */
export interface UpReady {
  readonly agent_api: string
  readonly agent_domain: string
  readonly api_token: string
  readonly ingress_http: string
  readonly ingress_https: string
  readonly ca_cert: string
  readonly reserved_domain: string
  readonly authtoken: string
  readonly management_api: string
  readonly api_key: string
}

export interface TunnelBody {
  readonly url: string
  readonly protocol: string
  readonly forwards_to: string
  readonly domain: string
  readonly policy: unknown
}

/** `device-agent up` in a process of its own, with the calls that a test makes. */
export class Device {
  readonly program: Program
  readonly up: UpReady
  readonly ca: string

  private constructor(program: Program, up: UpReady) {
    this.program = program
    this.up = up
    this.ca = readFileSync(up.ca_cert, 'utf8')
  }

  static async start(dataDir: string, env: Record<string, string> = {}): Promise<Device> {
    const program = new Program({
      args: ['up', '--json'],
      cwd: dataDir,
      env: {
        AGENT_DATA_DIR: join(dataDir, 'data'),
        LOG_LEVEL: 'info',
        // Free for one that is started again.
        GATEWAY_HTTP_LISTEN: formatListenAddress(lastingAddress()),
        GATEWAY_HTTPS_LISTEN: formatListenAddress(lastingAddress()),
        ...env,
      },
    })
    return new Device(program, await program.ready<UpReady>())
  }

  /** A call to the agent API on the device itself. */
  api(method: string, path: string, body?: unknown): Promise<PublicResponse> {
    return this.#call(this.up.agent_api, '127.0.0.1', method, path, body)
  }

  /** The same through the agent's own public domain, over TLS. */
  publicApi(method: string, path: string, body?: unknown): Promise<PublicResponse> {
    return this.#call(this.up.ingress_https, this.up.agent_domain, method, path, body)
  }

  create(domain: string, port: number, policy?: unknown): Promise<PublicResponse> {
    const spec = { protocol: 'http', forwards_to: `localhost:${port}`, domain }
    return this.publicApi('POST', '/tunnels', policy === undefined ? spec : { ...spec, policy })
  }

  async list(): Promise<TunnelBody[]> {
    return JSON.parse((await this.api('GET', '/tunnels')).text)
  }

  /** A visitor's request over plain HTTP. */
  visit(host: string, path = '/'): Promise<PublicResponse> {
    return publicRequest({ ingress: this.up.ingress_http, host, path })
  }

  visitTls(host: string, path = '/'): Promise<PublicResponse> {
    return publicRequest({ ingress: this.up.ingress_https, host, path, ca: this.ca })
  }

  #call(ingress: string, host: string, method: string, path: string, body?: unknown) {
    return publicRequest({
      ingress,
      host,
      method,
      path,
      ca: this.ca,
      headers: {
        authorization: `Bearer ${this.up.api_token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }
}
