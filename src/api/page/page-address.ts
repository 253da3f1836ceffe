import { isIPv4 } from 'node:net'
import { networkInterfaces } from 'node:os'
import { formatListenAddress, isLoopback, type ListenAddress } from '../../base/listen-address.ts'

export const PAGE_PATH = '/page/'

/** True for a peer that is on this machine; IPv4 may come in the form of IPv6. */
export function isLocalPeer(address: string | undefined): boolean {
  return isLoopback((address ?? '').replace(/^::ffff:/, ''))
}

/**
 * URLs of the page, those for other machines first. `listen` serves the page on this machine only,
 * `pageListen` on its configured address.
 */
export function pageUrls(
  listen: ListenAddress,
  pageListen: ListenAddress | undefined,
  addresses: () => readonly string[] = addressesOfMachine,
): string[] {
  const inNetwork = pageListen ? hostsOf(pageListen, addresses) : []
  const here = isEverywhere(listen.host) ? '127.0.0.1' : listen.host
  const urls = [
    ...inNetwork.map((host) => urlOf({ host, port: pageListen?.port ?? 0 })),
    ...(isLoopback(here) ? [urlOf({ host: here, port: listen.port })] : []),
  ]
  return [...new Set(urls)]
}

const urlOf = (address: ListenAddress) => `http://${formatListenAddress(address)}${PAGE_PATH}`
const isEverywhere = (host: string) => host === '0.0.0.0' || host === '::'

function hostsOf({ host }: ListenAddress, addresses: () => readonly string[]): readonly string[] {
  if (!isEverywhere(host)) return [host]
  const found = addresses()
  const shown = found.filter((address) => isIPv4(address))
  return shown.length > 0 ? shown : found
}

function addressesOfMachine(): string[] {
  try {
    return Object.values(networkInterfaces())
      .flat()
      .filter((it) => it && !it.internal && !it.address.startsWith('fe80:'))
      .map((it) => it?.address ?? '')
  } catch {
    // A sandbox may hide them.
    return []
  }
}
