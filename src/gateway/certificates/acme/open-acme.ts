import type { Clock } from '../../../base/clock.ts'
import type { Closer } from '../../../base/closer.ts'
import type { ListenAddress } from '../../../base/listen-address.ts'
import type { Logger } from '../../../base/logger.ts'
import { challengeZone } from '../../records/dns-target.ts'
import { AcmeAuthority } from './acme-authority.ts'
import { ChallengeZone } from './challenge-zone.ts'
import { answerDns, answerDnsReading } from './dns-answer.ts'
import { DnsListener } from './dns-listener.ts'
import type { OrderBook } from './order-book.ts'

export interface AcmeOptions {
  /** The gateway's data folder. */
  readonly dataDir: string
  /** Where certificates are ordered; unset: nowhere. */
  readonly acme: { readonly directoryUrl: string; readonly email: string | undefined } | undefined
  /** Where the authority's questions about challenges come in. */
  readonly dnsListen: ListenAddress | undefined
  readonly cnameBase: string
  readonly clock: Clock
  readonly log: Logger
}

export interface OpenAcme {
  readonly authority: AcmeAuthority | undefined
  readonly dns: DnsListener | undefined
  readonly dnsAddress: ListenAddress | undefined
}

/** The authority of the settings, and who answers its challenges: before the first order is placed. */
export async function openAcme(
  { acme, dnsListen, cnameBase, dataDir: folder, clock, log }: AcmeOptions,
  book: OrderBook | undefined,
  closer: Closer,
): Promise<OpenAcme> {
  const zone = new ChallengeZone(challengeZone(cnameBase))
  const { name } = zone
  const dns =
    dnsListen &&
    new DnsListener({
      listen: dnsListen,
      answer: (message, transport) =>
        book
          ? answerDnsReading(message, { name, read: () => book.zone(name) }, transport)
          : answerDns(message, zone, transport),
      ...{ clock, log },
    })
  if (dns) closer.own('dns listener', dns, (it) => it.stop())
  const dnsAddress = await dns?.start()
  const authority = acme && new AcmeAuthority({ ...acme, folder, zone, cnameBase, book })
  return { authority, dns, dnsAddress }
}
