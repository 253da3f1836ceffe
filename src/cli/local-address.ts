import { formatListenAddress, type ListenAddress } from '../base/listen-address.ts'

/** A listen address as a client on this machine dials it, also when it means every address. */
export function localAddress({ host, port }: ListenAddress): string {
  const isEverywhere = host === '0.0.0.0' || host === '::'
  return formatListenAddress({ host: isEverywhere ? '127.0.0.1' : host, port })
}
