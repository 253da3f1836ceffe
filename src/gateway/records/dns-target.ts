import type { ReservedDomain } from './reserved-domain-store.ts'

type Labeled = Pick<ReservedDomain, 'dnsLabel'>

/** Where the CNAME record of a reserved domain has to lead. */
export function cnameTarget({ dnsLabel }: Labeled, cnameBase: string): string {
  return `${dnsLabel}.cname.${cnameBase}`
}

/** Where the CNAME record of its `_acme-challenge` name has to lead. */
export function challengeTarget({ dnsLabel }: Labeled, cnameBase: string): string {
  return `${dnsLabel}.${challengeZone(cnameBase)}`
}

/** The zone whose name server this gateway is when it answers ACME challenges. */
export function challengeZone(cnameBase: string): string {
  return `acme.${cnameBase}`
}
