import { describe, expect, it } from 'vitest'
import {
  contradictions,
  type FindReservation,
  givesNothing,
  isGrant,
  mayAnswer,
  overlaps,
  type Reservation,
  reservationOf,
  reservationProblem,
  useProblem,
} from '../../../src/gateway/access/name-rules.ts'

/** `a! *.x.test` is a domain of a that the gateway's owner has granted; `-` is that owner. Oldest first. */
function reservations(text: string): Reservation[] {
  return text
    .split(',')
    .filter((part) => part.trim() !== '')
    .map((part, createdAt) => {
      const [owner = '', domain = ''] = part.trim().split(' ')
      const isGranted = owner.endsWith('!')
      return { domain, ownerId: accountOf(owner.replace('!', '')), isGranted, createdAt }
    })
}

const accountOf = (text: string) => (text === '-' ? null : text)

function finder(text: string): FindReservation {
  const all = reservations(text)
  return (domain) => all.find((one) => one.domain === domain)
}

const OWN = ['gw.test', '*.cname.gw.test']

describe('the reservation that a name belongs to', () => {
  it.each([
    ['x.a.test', 'a *.a.test', '*.a.test'],
    ['x.y.a.test', 'a *.a.test', '*.a.test'],
    ['a.test', 'a *.a.test', undefined],
    ['*.a.test', 'a *.a.test', '*.a.test'],
    ['*.x.a.test', 'a *.a.test', '*.a.test'],
    ['xa.test', 'a *.a.test', undefined],
    ['test', 'a *.test', undefined],
    // The most specific one.
    ['x.b.test', '- *.b.test, b! x.b.test', 'x.b.test'],
    ['x.in.b.test', '- *.test, b! *.b.test, c! *.in.b.test', '*.in.b.test'],
    ['x.out.b.test', '- *.test, b! *.b.test, c! *.in.b.test', '*.b.test'],
    // A wildcard that another account has put above it later, or before.
    ['cam.v.test', 'v cam.v.test, t *.v.test', 'cam.v.test'],
    ['cam.v.test', 't *.v.test, v cam.v.test', '*.v.test'],
    ['cam.v.test', 't *.v.test, v! cam.v.test', 'cam.v.test'],
    // What lies in the domain of the gateway's owner was made by that owner.
    ['cam.v.test', '- *.v.test, v cam.v.test', 'cam.v.test'],
    ['cam.v.test', 't *.v.test, - cam.v.test', 'cam.v.test'],
    ['cam.v.test', 'v *.v.test, v cam.v.test', 'cam.v.test'],
    ['x.in.v.test', 't *.test, v *.v.test, t *.in.v.test', '*.test'],
  ])('%s among %s is %s', (name, text, domain) => {
    expect(reservationOf(name, finder(text))?.domain).toBe(domain)
  })
})

describe('domains that overlap', () => {
  it.each([
    ['a.test', 'a.test', true],
    ['x.a.test', '*.a.test', true],
    ['*.x.a.test', '*.a.test', true],
    // The name above a wildcard shares its cookies.
    ['a.test', '*.a.test', true],
    ['*.a.test', '*.test', true],
    ['a.test', '*.x.a.test', false],
    ['x.test', '*.a.test', false],
    ['xa.test', '*.a.test', false],
    ['*.xa.test', '*.a.test', false],
  ])('%s and %s: %s', (one, other, isSo) => {
    expect([overlaps(one, other), overlaps(other, one)]).toEqual([isSo, isSo])
  })
})

describe('why an account cannot reserve a domain', () => {
  it.each([
    ['a shop.test', '', undefined],
    ['a *.shop.test', '', undefined],
    ['a *.shop.test', 'a *.in.shop.test, a shop.test', undefined],
    // Above, below, beside and exactly what others have.
    ['a *.v.test', 'v cam.v.test', 'overlap'],
    ['a *.v.test', 'v *.in.v.test', 'overlap'],
    ['a cam.v.test', 'v *.v.test', 'overlap'],
    ['a *.in.v.test', 'v *.v.test', 'overlap'],
    ['a v.test', 'v *.v.test', 'overlap'],
    ['a *.v.test', 'v v.test', 'overlap'],
    ['a v.test', 'v v.test', 'overlap'],
    ['a cam.free.test', '- *.free.test', 'overlap'],
    ['a *.v.test', 'a x.v.test, v cam.v.test', 'overlap'],
    // What many share is for the gateway's owner.
    ['a *.com', '', 'public-suffix'],
    ['a *.localhost', '', 'public-suffix'],
    ['a *.lan', '', 'public-suffix'],
    ['a *.co.uk', '', 'public-suffix'],
    ['a *.github.io', '', 'public-suffix'],
    ['a *.ck', '', 'public-suffix'],
    ['a *.x.ck', '', 'public-suffix'],
    ['a *.kawasaki.jp', '', 'public-suffix'],
    ['a *.xn--p1ai', '', 'public-suffix'],
    ['a co.uk', '', 'public-suffix'],
    ['a *.me.github.io', '', undefined],
    ['a *.www.ck', '', undefined],
    ['a *.site.localhost', '', undefined],
    ['a *.shop.xn--p1ai', '', undefined],
    // The gateway's own names.
    ['a gw.test', '', 'gateway-name'],
    ['a *.gw.test', '', 'gateway-name'],
    ['a x.cname.gw.test', '', 'gateway-name'],
    ['a cname.gw.test', '', 'gateway-name'],
    ['a login.gw.test', '', 'gateway-name'],
    ['a *.x.gw.test', '', 'gateway-name'],
    ['a! login.gw.test', '', undefined],
    ['a notgw.test', '', undefined],
    // The gateway's owner, for itself and for others.
    ['- *.v.test', 'v cam.v.test', undefined],
    ['- *.test', 'v cam.v.test', undefined],
    ['- gw.test', '', undefined],
    ['a! cam.v.test', 'v *.v.test', undefined],
    ['a! *.com', '', undefined],
  ])('%s beside %s: %s', (asked, others, problem) => {
    const [reserved] = reservations(asked) as [Reservation]
    expect(reservationProblem(reserved, reservations(others), OWN)).toBe(problem)
  })
})

describe('why an account cannot use a host', () => {
  it.each([
    ['a', 'x.a.test', 'a *.a.test', undefined],
    ['a', '*.a.test', 'a *.a.test', undefined],
    ['a', '*.x.a.test', 'a *.a.test', 'wildcard-above'],
    ['a', 'a.test', 'a *.a.test', 'not-reserved'],
    ['a', '*.b.test', '', 'wildcard-not-reserved'],
    ['a', 'x.b.test', 'b *.b.test', 'not-reserved'],
    ['a', 'x.in.a.test', 'a *.a.test, b! *.in.a.test', 'not-reserved'],
    ['a', 'x.free.test', '- *.free.test', 'not-reserved'],
    ['a+', 'x.free.test', '- *.free.test', undefined],
    ['a+', '*.free.test', '- *.free.test', undefined],
    ['a+', 'x.b.test', 'b *.b.test', 'not-reserved'],
    ['a+', 'x.in.free.test', '- *.free.test, b! x.in.free.test', 'not-reserved'],
    ['-', 'x.b.test', 'b *.b.test', 'not-reserved'],
    ['-', 'gw.test', '- gw.test', undefined],
    // The gateway's own names are given one by one.
    ['a', 'gw.test', 'a gw.test', 'gateway-name'],
    ['a', 'gw.test', 'a! gw.test', undefined],
    ['a', 'x.cname.gw.test', 'a! *.gw.test', 'gateway-name'],
    ['a', 'x.gw.test', 'a! *.gw.test', undefined],
    ['a', 'cam.internal', '', undefined],
  ])('%s, %s among %s: %s', (who, host, text, problem) => {
    const use = { ownerId: accountOf(who.replace('+', '')), isGranted: who.endsWith('+') }
    expect(useProblem(host, use, finder(text), OWN)).toBe(problem)
  })
})

describe('a rule of the gateway’s owner', () => {
  it.each([
    ['*.free.test', 'x.free.test', '- *.free.test', true],
    ['x.free.test', 'x.free.test', '- *.free.test', true],
    ['*.in.free.test', 'x.in.free.test', '- *.free.test', true],
    ['*', 'x.free.test', '- *.free.test', true],
    ['*', 'gw.test', '- *.test', false],
    ['*.test', 'gw.test', '- *.test', false],
    ['gw.test', 'gw.test', '- *.test', true],
    // A rule above a domain gives nothing of it, nor of those that come later.
    ['*.localhost', 'x.site.localhost', '- *.site.localhost', false],
    ['*.localhost', 'x.site.localhost', 'a *.localhost, - *.site.localhost', false],
    ['*.b.test', 'x.b.test', 'b *.b.test', false],
  ])('for %s gives %s among %s: %s', (rule, host, text, isSo) => {
    expect(isGrant(rule === '*' ? undefined : rule, host, finder(text), OWN)).toBe(isSo)
  })
})

describe('a wildcard endpoint', () => {
  it.each([
    ['a *.a.test', 'x.a.test', 'a *.a.test', true],
    ['a *.a.test', 'a *.a.test', 'a *.a.test', true],
    // Of another account, with the leave of the gateway's owner.
    ['a *.free.test', 'x.free.test', '- *.free.test', true],
    ['a *.free.test', 'x.free.test', '- *.free.test, b! x.free.test', false],
    ['a *.free.test', 'x.free.test', '- *.free.test, a! x.free.test', true],
    ['a *.free.test', 'x.free.test', '- *.free.test, - x.free.test', false],
    ['a *.free.test', 'x.in.free.test', '- *.free.test, b! *.in.free.test', false],
    ['t *.v.test', 'cam.v.test', 'v cam.v.test, t *.v.test', false],
    ['t *.localhost', 'x.site.localhost', '- *.site.localhost, t *.localhost', false],
    ['t *.localhost', 'x.localhost', '- *.site.localhost, t *.localhost', true],
    ['t *.test', 'gw.test', 't! *.test', false],
    ['- *.test', 'gw.test', '- *.test', true],
  ])('%s answers for %s among %s: %s', (endpoint, host, text, isSo) => {
    const [owner = '', wildcard = ''] = endpoint.split(' ')
    const of = { host: wildcard, ownerId: accountOf(owner) }
    expect(mayAnswer(host.split(' ').at(-1) ?? '', of, finder(text), OWN)).toBe(isSo)
  })
})

describe('reservations that contradict each other', () => {
  it.each([
    ['v cam.v.test, t *.v.test', 'v cam.v.test < t *.v.test'],
    ['t *.v.test, v cam.v.test', 't *.v.test < v cam.v.test'],
    ['v *.v.test, t v.test', 'v *.v.test < t v.test'],
    ['- *.v.test, v cam.v.test', ''],
    ['- *.v.test, t v.test', '- *.v.test < t v.test'],
    ['- cam.v.test, t *.v.test', '- cam.v.test < t *.v.test'],
    ['- *.v.test, v! cam.v.test', ''],
    ['v cam.v.test, - *.v.test', ''],
    ['v *.v.test, v x.v.test, t *.t.test', ''],
  ])('in %s: %s', (text, expected) => {
    const nameOf = ({ ownerId, domain }: Reservation) => `${ownerId ?? '-'} ${domain}`
    const found = [...contradictions(reservations(text))]
    expect(found.map(([older, newer]) => `${nameOf(older)} < ${nameOf(newer)}`).join()).toBe(
      expected,
    )
  })
})

describe('an ACL rule that gives no name', () => {
  it.each([
    // The rule, whose it is, whether the gateway's owner has set it, and the reservations.
    ['*.v.test', 't', false, 'v *.v.test', true],
    ['cam.v.test', 't', false, 'v *.v.test', true],
    ['*.test', 't', false, 'v *.v.test', true],
    ['*.test', 't', false, 'v *.v.test, t *.t.test', false],
    ['*.v.test', 'v', false, 'v *.v.test', false],
    ['*.cam.v.test', 'v', false, 'v *.v.test', false],
    // Nobody has reserved it: nothing is lost.
    ['*.free.test', 't', false, 'v *.v.test', false],
    ['*.o.test', 't', true, '- *.o.test', false],
    ['*.cam.o.test', 't', true, '- *.o.test, v x.cam.o.test', false],
    ['*.cam.o.test', 't', false, '- *.o.test', true],
  ])('%s of %s, granted %s, among %s: %s', (rule, ownerId, isGranted, text, isSo) => {
    const use = { ownerId, isGranted }
    const related = reservations(text).filter(({ domain }) => overlaps(domain, rule))
    expect(givesNothing(rule, use, finder(text), OWN, related)).toBe(isSo)
  })
})
