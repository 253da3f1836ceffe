import { describe, expect, it } from 'vitest'
import {
  CLOCK_REMEDY,
  connectionProblem,
  foreignProblem,
  nameProblem,
  silenceProblem,
  untrustedProblem,
} from '../../../src/agent/probes/connection-problem.ts'

const WHERE = 'gateway.lan:4443'
const withCode = (code: string) => Object.assign(new Error('as Node says it'), { code })

describe('a connection that fails', () => {
  it.each([
    ['ENOTFOUND', 'dns', 'cannot be resolved by DNS (ENOTFOUND)'],
    ['EAI_AGAIN', 'dns', 'cannot be resolved: DNS does not answer (EAI_AGAIN)'],
    ['EAI_FAIL', 'dns', 'cannot be resolved by DNS (EAI_FAIL)'],
    ['EAI_NONAME', 'dns', 'cannot be resolved by DNS (EAI_NONAME)'],
    ['ENODATA', 'dns', 'cannot be resolved by DNS (ENODATA)'],
    ['ESERVFAIL', 'dns', 'cannot be resolved by DNS (ESERVFAIL)'],
    ['ECONNREFUSED', 'network', 'refuses connections'],
    ['ECONNRESET', 'network', 'closed the connection'],
    ['EHOSTUNREACH', 'network', 'is unreachable'],
    ['ENETUNREACH', 'network', 'is unreachable: the device has no route'],
    ['ETIMEDOUT', 'network', 'does not answer'],
    ['EMFILE', 'network', 'failed (EMFILE)'],
    ['EPROTO', 'tls', 'does not speak TLS'],
    ['ERR_SSL_WRONG_VERSION_NUMBER', 'tls', 'does not speak TLS'],
    ['ERR_SSL_BAD_SIGNATURE', 'tls', 'failed (ERR_SSL_BAD_SIGNATURE)'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'tls', 'has a certificate for another name'],
    ['CERT_HAS_EXPIRED', 'tls', 'failed (CERT_HAS_EXPIRED)'],
  ])('with %s is %s', (code, reason, sentence) => {
    expect(connectionProblem(WHERE, withCode(code))).toMatchObject({
      reason,
      detail: `${WHERE} ${sentence}`,
      permanent: false,
    })
  })

  it.each([
    'CERT_SIGNATURE_FAILURE',
    'DEPTH_ZERO_SELF_SIGNED_CERT',
    'SELF_SIGNED_CERT_IN_CHAIN',
    'UNABLE_TO_GET_ISSUER_CERT',
    'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
    'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  ])('with %s has met a CA that nobody here trusts', (code) => {
    expect(connectionProblem(WHERE, withCode(code))).toMatchObject({
      reason: 'tls',
      detail: `${WHERE} has a certificate of an unknown CA (${code})`,
    })
  })

  it('at several addresses is told by the last of them', () => {
    const tries = new AggregateError([withCode('ENETUNREACH'), withCode('ECONNREFUSED')])
    expect(connectionProblem(WHERE, tries).detail).toBe(`${WHERE} refuses connections`)
    const none = new AggregateError([], 'no address')
    expect(connectionProblem(WHERE, none).detail).toBe(`${WHERE} failed (no address)`)
  })

  it.each([
    [new Error('socket hang up'), 'socket hang up'],
    [Object.assign(new Error('odd'), { code: 7 }), 'odd'],
    ['not an error', 'unknown error'],
  ])('without a code of its own is told by what there is: %s', (error, said) => {
    expect(connectionProblem(WHERE, error)).toMatchObject({
      reason: 'network',
      detail: `${WHERE} failed (${said})`,
    })
  })

  it('for another name lists the names of the certificate, which are untrusted', () => {
    const detailOf = (names: string) => nameProblem(WHERE, 'gateway.lan', names).detail
    const said = `${WHERE} presented a certificate for other names: `
    expect(detailOf('DNS:*.a.lan, IP Address:192.0.2.7, IP Address:0:0:0:0:0:0:0:1')).toBe(
      `${said}*.a.lan, 192.0.2.7, 0:0:0:0:0:0:0:1`,
    )
    expect(detailOf('')).toBe(`${said}none`)
    expect(detailOf('DNS:a\u001b[31m')).toBe(`${said}a??31m`)
    expect(
      detailOf(
        Array(40)
          .fill(`DNS:${'x'.repeat(90)}`)
          .join(', '),
      ).length,
    ).toBeLessThan(1_000)
  })

  it('names the restart where the address may have to be corrected', () => {
    const codes = ['ENOTFOUND', 'ENETUNREACH', 'EHOSTUNREACH', 'ETIMEDOUT', 'ECONNREFUSED']
    const others = ['EPROTO', 'ERR_SSL_OTHER', 'ERR_TLS_CERT_ALTNAME_INVALID', 'EPIPE']
    const problems = [
      ...[...codes, ...others].map((code) => connectionProblem(WHERE, withCode(code))),
      nameProblem(WHERE, 'gateway.lan', ''),
      silenceProblem(WHERE, 4_001),
      silenceProblem(WHERE, 4_001, true),
      foreignProblem(WHERE),
    ]
    for (const { remedy } of problems) {
      expect(remedy).toContain('SVC_SERVER_ADDR')
      expect(remedy).toMatch(/restart the agent/)
    }
  })

  it('has a remedy of its own kind', () => {
    const remedyOf = (code: string) => connectionProblem(WHERE, withCode(code)).remedy
    expect(remedyOf('ENOTFOUND')).toMatch(/^Correct the host name in SVC_SERVER_ADDR/)
    expect(remedyOf('EAI_AGAIN')).toMatch(/its DNS server answers/)
    expect(remedyOf('ENETUNREACH')).toMatch(/default route/)
    expect(remedyOf('ECONNRESET')).toMatch(/limit of connections/)
    expect(remedyOf('EPROTO')).toMatch(/^Check the port in SVC_SERVER_ADDR/)
    expect(remedyOf('ERR_SSL_WRONG_VERSION_NUMBER')).toBe(remedyOf('EPROTO'))
    expect(remedyOf('ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION')).toMatch(/interfere with TLS/)
    expect(remedyOf('ERR_TLS_CERT_ALTNAME_INVALID')).toMatch(/name of the certificate/)
    expect(remedyOf('SELF_SIGNED_CERT_IN_CHAIN')).toContain('SVC_CA_CERT')
    expect(remedyOf('ECONNREFUSED')).toContain('by default 4443')
    // Without it, set-time is refused while the time server is in use.
    expect(CLOCK_REMEDY).toMatch(/sudo timedatectl set-ntp false, then sudo timedatectl set-time/)
    expect(untrustedProblem('tls handshake error')).toMatchObject({
      reason: 'tls',
      detail: expect.stringContaining('(tls handshake error)'),
      remedy: remedyOf('SELF_SIGNED_CERT_IN_CHAIN'),
      permanent: false,
    })
    expect(silenceProblem(WHERE, 4_001)).toEqual({
      reason: 'network',
      detail: `${WHERE} did not answer within 5 s`,
      remedy: remedyOf('ETIMEDOUT'),
      permanent: false,
    })
    expect(silenceProblem(WHERE, 4_001, true)).toMatchObject({
      detail: `${WHERE} did not answer within 5 s (it accepts connections)`,
      remedy: expect.stringMatching(/^Check the port in SVC_SERVER_ADDR/),
    })
  })
})
