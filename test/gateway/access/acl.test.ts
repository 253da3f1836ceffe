import { describe, expect, it } from 'vitest'
import { Acl, isAclRule } from '../../../src/gateway/access/acl.ts'

const LONG = `${'a'.repeat(63)}.example.com`

/** Rule, name to bind, expected answer. */
const PAIRS: [rule: string, host: string, allowed: boolean][] = [
  ['*', 'a.example.com', true],
  ['*', '*.example.com', true],
  ['bind:*', 'a.example.com', true],
  ['bind:*', '*.a.b.c.example.com', true],
  // One name.
  ['bind:foo.example.com', 'foo.example.com', true],
  ['bind:foo.example.com', 'bar.example.com', false],
  ['bind:foo.example.com', 'example.com', false],
  ['bind:foo.example.com', 'a.foo.example.com', false],
  ['bind:foo.example.com', '*.foo.example.com', false],
  ['bind:foo.example.com', '*.example.com', false],
  ['bind:foo.example.com', 'foo.example.com.evil.com', false],
  ['bind:foo.example.com', 'xfoo.example.com', false],
  ['bind:foo.example.com', 'foo.example.co', false],
  ['bind:foo.example.com', 'foo-example.com', false],
  ['bind:FOO.Example.Com', 'foo.example.com', true],
  ['bind:example.com', 'example.com', true],
  ['bind:example.com', 'www.example.com', false],
  [`bind:${LONG}`, LONG, true],
  ['bind:xn--bcher-kva.example.com', 'xn--bcher-kva.example.com', true],
  ['bind:alias1.internal', 'alias1.internal', true],
  ['bind:alias1.internal', 'alias2.internal', false],
  // A wildcard: every depth below it, itself, never its apex.
  ['bind:*.example.com', 'a.example.com', true],
  ['bind:*.example.com', 'a.b.example.com', true],
  ['bind:*.example.com', 'a.b.c.d.example.com', true],
  ['bind:*.example.com', '*.example.com', true],
  ['bind:*.example.com', '*.b.example.com', true],
  ['bind:*.example.com', 'example.com', false],
  ['bind:*.example.com', 'badexample.com', false],
  ['bind:*.example.com', 'a.badexample.com', false],
  ['bind:*.example.com', 'a.example.com.evil.com', false],
  ['bind:*.example.com', 'a.example.org', false],
  ['bind:*.example.com', '*.com', false],
  ['bind:*.Example.COM', 'a.example.com', true],
  ['bind:*.sitea.example.com', 'd1.sitea.example.com', true],
  ['bind:*.sitea.example.com', 'd1.siteb.example.com', false],
  ['bind:*.sitea.example.com', 'sitea.example.com', false],
  ['bind:*.sitea.example.com', '*.example.com', false],
  ['bind:*.sitea.example.com', 'sitea.example.com.sitea.example.com', true],
  ['bind:*.site1.internal', 'cam.site1.internal', true],
  ['bind:*.site1.internal', 'cam.site2.internal', false],
  ['bind:*.internal', 'cam.internal', true],
  ['bind:*.internal', 'internal', false],
  ['share:cam.internal', 'cam.internal', true],
  ['share:cam.internal', 'door.internal', false],
  ['share:*.site1.internal', 'cam.site1.internal', true],
  // Ports: the default ones say nothing, another one speaks of a TCP address.
  ['bind:foo.example.com:443', 'foo.example.com', true],
  ['bind:foo.example.com:80', 'foo.example.com', true],
  ['bind:foo.example.com:443', 'bar.example.com', false],
  ['bind:*.example.com:443', 'a.example.com', true],
  ['bind:foo.example.com:8443', 'foo.example.com', false],
  ['bind:1.tcp.example.com:20002', '1.tcp.example.com', false],
  ['bind:1.tcp.example.com:*', '1.tcp.example.com', false],
  ['bind:*.tcp.example.com:*', '1.tcp.example.com', false],
  // Labels are for labeled tunnels and allow no name.
  ['bind:foo=bar', 'foo.example.com', false],
  ['bind:app=*', 'app.example.com', false],
  ['bind:*=example', 'example.com', false],
  ['bind:*=*', 'a.example.com', false],
]

const BAD_RULES = [
  'share:*',
  'share:cam.example.com',
  'share:*.example.com',
  'share:internal',
  'share:app=*.internal',
  'share:cam.internal:443',
  'share:cam.internal:*',
  'bind:foo.example.com:**',
  '',
  'bind',
  'bind:',
  'Bind:*',
  'dial:*',
  'foo.example.com',
  'bind: foo.example.com',
  'bind:foo.example.com ',
  'bind:foo',
  'bind:.example.com',
  'bind:*example.com',
  'bind:a.*.example.com',
  'bind:*.*.example.com',
  'bind:**',
  'bind:foo..example.com',
  'bind:-foo.example.com',
  'bind:foo-.example.com',
  'bind:foo_bar.example.com',
  'bind:foo.example.com:70000',
  'bind:foo.example.com:',
  'bind:https://foo.example.com',
  'bind:foo=',
  'bind:=bar',
  'bind:foo=b*',
  `bind:a${LONG}`,
  `bind:${'a.'.repeat(300)}com`,
]

describe('Acl', () => {
  it.each(PAIRS)('%s, asked for %s: %s', (rule, host, allowed) => {
    expect(isAclRule(rule)).toBe(true)
    expect(Acl.of([rule]).allows(host)).toBe(allowed)
  })

  it('sets no limits without rules', () => {
    expect(Acl.of([])).toMatchObject({ isEmpty: true })
    expect(Acl.of([]).allows('anything.example.com')).toBe(true)
    expect(Acl.of(['nonsense']).isEmpty).toBe(false)
  })

  it('shares what a rule shares, and nothing that it only lets be bound', () => {
    const acl = Acl.of(['bind:*.internal', 'share:cam.internal', '*'])
    expect([acl.shares('cam.internal'), acl.shares('door.internal')]).toEqual([true, false])
    expect(Acl.of(['*']).shares('cam.internal')).toBe(false)
    expect(Acl.of([]).shares('cam.internal')).toBe(false)
  })

  it('allows what one of several rules allows', () => {
    const acl = Acl.of(['bind:app=*', 'bind:a.example.com', 'bind:*.b.example.com'])
    expect(acl.allows('a.example.com')).toBe(true)
    expect(acl.allows('x.b.example.com')).toBe(true)
    expect(acl.allows('c.example.com')).toBe(false)
    expect(acl.hosts()).toEqual(['a.example.com', '*.b.example.com'])
  })

  it.each(BAD_RULES)('refuses the rule %j and lets it allow nothing', (rule) => {
    expect(isAclRule(rule)).toBe(false)
    expect(Acl.of([rule]).allows('foo.example.com')).toBe(false)
  })
})

describe('a TCP address', () => {
  it.each([
    ['*', 'gw.example.com:22', true],
    ['bind:*', 'gw.example.com:22', true],
    ['bind:gw.example.com', 'gw.example.com:22', false],
    ['bind:gw.example.com:*', 'gw.example.com:22', true],
    ['bind:gw.example.com:*', 'other.example.com:22', false],
    ['bind:*.example.com:*', 'gw.example.com:22', true],
    ['bind:gw.example.com:22', 'gw.example.com:22', true],
    ['bind:gw.example.com:22', 'gw.example.com:2222', false],
    ['bind:gw.example.com:22', 'other.example.com:22', false],
    ['bind:*.example.com', 'gw.example.com:22', false],
    ['bind:10.0.0.5:22', '10.0.0.5:22', true],
    ['bind:10.0.0.5', '10.0.0.5:2222', true],
    ['bind:10.0.0.5:22', '10.0.0.6:22', false],
    ['bind:[::1]:22', '[::1]:22', true],
    ['bind:[::1]', '[::1]:23', true],
    ['bind:::1', '[::1]:23', true],
    ['bind:[::1]:*', '[::1]:23', true],
    ['bind:[::1]:22', '[::1]:23', false],
    ['bind:[0:0:0:0:0:0:0:1]:22', '[::1]:22', true],
    ['bind:[2001:DB8::1]:22', '[2001:db8:0::1]:22', true],
    ['bind:[2001:db8::2]:22', '[2001:db8::1]:22', false],
    ['bind:key=value', 'gw.example.com:22', false],
  ])('%s for %s: %s', (rule, address, allowed) => {
    expect(isAclRule(rule)).toBe(true)
    expect(Acl.of([rule]).allowsAddress(address)).toBe(allowed)
    expect(Acl.of([]).allowsAddress(address)).toBe(true)
  })
})
