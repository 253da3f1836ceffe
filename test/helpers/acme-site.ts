import { once } from 'node:events'
import { connect } from 'node:tls'
import { expect } from 'vitest'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import type { ReservedDomain } from '../../src/gateway/records/reserved-domain-store.ts'
import { AcmeServer } from './acme-server.ts'
import { startDnsServer } from './dns-server.ts'
import { eventually } from './eventually.ts'
import { type RunningOptions, startGateway } from './running-gateway.ts'

/**
 * A gateway and our own authority, which connects to its listeners. With a `dnsListen`, `challenges` is the
 * address of its DNS server.
 */
export async function openAcmeSite(options: RunningOptions = {}, challenges = () => '') {
  const records: Record<string, string> = {}
  const dnsServer = await startDnsServer(records)
  const ports = { http: 0, https: 0 }
  const acme = await AcmeServer.start({
    records: dnsServer,
    challenges,
    ports: () => ports,
    now: Date.now,
  })
  const running = await startGateway({
    acme: { directoryUrl: acme.directoryUrl, email: undefined },
    dnsServers: [dnsServer],
    ...options,
  })
  const { gateway, addresses } = running
  Object.assign(ports, { http: addresses.http.port, https: addresses.https.port })
  const { registrar, certificates } = gateway.parts
  const statusOf = (domain: ReservedDomain) => certificates.domains.statusOf(domain)
  const failed = (domain: ReservedDomain) =>
    eventually(() => {
      const { job } = statusOf(domain)
      expect(job?.error).toBeDefined()
      return job
    })
  const dnsServers = [dnsServer]
  return { ...running, acme, records, dnsServers, ports, registrar, statusOf, failed }
}

export type AcmeSite = Awaited<ReturnType<typeof openAcmeSite>>

interface Hello {
  readonly servername: string
  readonly ALPNProtocols?: string[]
  readonly ca?: string
}

/** Shakes hands and returns the chosen protocol and whether the certificate is trusted, or the error. */
export async function shake({ port }: ListenAddress, hello: Hello) {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...hello })
  try {
    await once(socket, 'secureConnect')
    const { subjectaltname } = socket.getPeerCertificate()
    return { protocol: socket.alpnProtocol, isTrusted: socket.authorized, names: subjectaltname }
  } catch (error) {
    return { error: (error as NodeJS.ErrnoException).code }
  } finally {
    socket.destroy()
  }
}

export const isTrusted = async (
  { addresses, acme }: Pick<AcmeSite, 'addresses' | 'acme'>,
  servername: string,
) => (await shake(addresses.https, { servername, ca: acme.caPem })).isTrusted
