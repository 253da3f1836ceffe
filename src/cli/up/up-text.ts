import { relative } from 'node:path'
import type { Config } from '../../config.ts'
import { apiKeyPath } from '../api-key-file.ts'

/** What `up --json` prints, as one line. */
export interface UpReady {
  readonly agent_api: string
  readonly agent_domain: string
  /** Null when the file of the token cannot be read. */
  readonly api_token: string | null
  readonly ingress_http: string
  readonly ingress_https: string
  readonly ca_cert: string
  readonly reserved_domain: string
  readonly authtoken: string
  readonly management_api: string
  readonly api_key: string
}

const UNREADABLE = 'cannot read its file: delete the file and start again'

/** What a newcomer needs: what runs where, and three lines to paste. */
export function describeUp(ready: UpReady, samplePort: number, config: Config): string {
  const { agent } = config
  const tokenFile = shown(`${agent.dataDir}/api-token`)
  const isInFile = !agent.apiToken && ready.api_token !== null
  const token = isInFile ? `$(cat ${tokenFile})` : '$AGENT_API_TOKEN'
  const host = `hello${ready.reserved_domain.slice(1)}`
  const authorization = `-H "authorization: Bearer ${token}"`
  const body = JSON.stringify({
    protocol: 'http',
    forwards_to: `localhost:${samplePort}`,
    domain: host,
  })
  return `Agent and gateway are up.

  agent API    ${ready.agent_api}  and  https://${ready.agent_domain}:${new URL(ready.ingress_https).port}
  API token    ${isInFile ? tokenFile : agent.apiToken ? 'AGENT_API_TOKEN' : UNREADABLE}
  public       ${ready.ingress_http}  and  ${ready.ingress_https} (CA: ${shown(ready.ca_cert)})
  domain       ${ready.reserved_domain}
  console      ${ready.management_api}/console/ (API key: ${shown(apiKeyPath(config.gateway))})
  sample       http://127.0.0.1:${samplePort}, a service to test with

Paste these into another terminal, in this folder:

  # create a tunnel to the sample service (or to another port)
  curl -sS ${authorization} -H 'content-type: application/json' -d '${body}' ${ready.agent_api}/tunnels

  # list all tunnels of this device
  curl -sS ${authorization} ${ready.agent_api}/tunnels

  # visit the tunnel
  ${visitOf(host, ready.ingress_http)}

Tunnels are stored: after Ctrl-C, the next start brings them back.
`
}

const visitOf = (host: string, ingress: string) => {
  const { port, hostname } = new URL(ingress)
  return `curl -sS --resolve ${host}:${port}:${hostname} http://${host}:${port}/`
}

/** A path as one would type it in the current folder. */
function shown(path: string): string {
  const short = relative('.', path)
  return short.startsWith('..') ? path : short
}
