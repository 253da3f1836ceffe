import { formatListenAddress, isLoopback, type ListenAddress } from '../base/listen-address.ts'
import {
  agentAddresses,
  isAnyHost,
  isThisMachine,
  machineAddresses,
  type PublicName,
} from '../base/net/public-names.ts'

/** A listen address as a client on this machine dials it, also when it means every address. */
export function localAddress({ host, port }: ListenAddress): string {
  return formatListenAddress({ host: isAnyHost(host) ? '127.0.0.1' : host, port })
}

/** A listen address as a client elsewhere dials it, as far as this machine knows. */
export function outsideAddress(
  { host, port }: ListenAddress,
  names: readonly PublicName[],
): string {
  const known = names[0]?.host ?? machineAddresses()[0]
  return isAnyHost(host) && known !== undefined
    ? formatListenAddress({ host: known, port })
    : localAddress({ host, port })
}

/** How devices reach the gateway with these settings. */
export interface AgentReach {
  /** Values for `SVC_SERVER_ADDR`, the best first. */
  readonly addresses: readonly string[]
  /** Whether only this machine can use them. */
  readonly isLocal: boolean
  /** What the owner has to know about them; undefined if there is nothing. */
  readonly advice: string | undefined
}

/** Works out the addresses for devices from the address of the listener and the public names. */
export function agentReach(listen: ListenAddress, names: readonly PublicName[]): AgentReach {
  const addresses = agentAddresses(listen, names)
  const hosts = addresses.map((address) => address.slice(0, address.lastIndexOf(':')))
  const isLocal = hosts.length > 0 && hosts.every(isThisMachine)
  return { addresses, isLocal, advice: adviceFor(listen, names, isLocal) }
}

function adviceFor(
  listen: ListenAddress,
  names: readonly PublicName[],
  isLocal: boolean,
): string | undefined {
  const where = formatListenAddress(listen)
  const listens = `GATEWAY_AGENT_LISTEN (${where}) accepts no connection from other machines`
  const remedies = [
    ...(isLoopback(listen.host) ? [`GATEWAY_AGENT_LISTEN=0.0.0.0:${listen.port || 4443}`] : []),
    ...(isLocal ? ['GATEWAY_PUBLIC_NAMES to the DNS name or address of this gateway'] : []),
  ]
  if (isLocal) {
    return `devices on other machines cannot use ${names[0]?.host ?? '127.0.0.1'}; set ${remedies.join(' and ')}`
  }
  if (isLoopback(listen.host))
    return `${listens}; set ${remedies.join(' and ')}, unless a proxy on this machine forwards to it`
  if (names.length > 0) return undefined
  return 'these are the addresses of this machine; if devices use a DNS name or another address, set GATEWAY_PUBLIC_NAMES'
}
