import { describe, expect, it } from 'vitest'
import { CONDITIONS } from '../../src/agent/condition.ts'
import {
  clockProblem,
  connectionProblem,
  expiredProblem,
  silenceProblem,
  untrustedProblem,
} from '../../src/agent/probes/connection-problem.ts'
import { type Problem, saturatedProblem } from '../../src/agent/problem.ts'
import { DEFAULT_UPSTREAM } from '../../src/agent/upstreams/upstream-options.ts'
import { type Upstream, upstreamProblem } from '../../src/agent/upstreams/upstream-state.ts'
import { type Cause, MAX_HEADLINE, VERDICT_TEXTS, verdictFrom } from '../../src/agent/verdict.ts'
import { describeFault } from '../../src/store/storage-state.ts'

const LONG = `${'long-name-'.repeat(12)}.example.com:44443`
const NAMES = ['gw.lan:1', 'localhost:8080', LONG]
const SERVINGS = [
  ...['No tunnels.', '999 of 1000 tunnels work.', 'All 99 tunnels are online.'],
  ...['Checking all 1000 tunnels.', '98 of 1000 tunnels work. 902 are being checked.'],
]
/** Words that hide the subject of a sentence, or are not used today. */
const HIDDEN =
  /\b(who|whom|whose|whoever|what|whatever|nobody|somebody|those|the one|shall|anew|vain|hangs there)\b/i
const MAX_WORDS = 20

const HOUR = 3_600_000
const UPSTREAMS: Upstream[] = ['down', 'slow', 'busy', 'garbage', 'untrusted', 'old_tls']
const SOCKET_CODES = [
  ...['ENOTFOUND', 'EAI_AGAIN', 'ECONNREFUSED', 'ECONNRESET', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['ETIMEDOUT', 'ERR_TLS_CERT_ALTNAME_INVALID', 'EPROTO', 'SELF_SIGNED_CERT_IN_CHAIN', 'EOTHER'],
]

const codeError = (code: string) => Object.assign(new Error(code), { code })

function problemsAt(name: string): (Problem | undefined)[] {
  const settings = [DEFAULT_UPSTREAM, { ...DEFAULT_UPSTREAM, health: '/alive' as const }]
  return [
    ...UPSTREAMS.flatMap((state) => settings.map((it) => upstreamProblem(name, state, it))),
    ...UPSTREAMS.map((state) => upstreamProblem(`https://${name}`, state, DEFAULT_UPSTREAM)),
    ...SOCKET_CODES.map((code) => connectionProblem(name, codeError(code))),
    clockProblem(name, 0, HOUR),
    expiredProblem(name, HOUR, true),
    expiredProblem(name, undefined, false),
    silenceProblem(name, 10_000),
    untrustedProblem('UnknownIssuer'),
    saturatedProblem(`${name} answered 503`, 'ERR_GATEWAY_SATURATED'),
  ]
}

function causeOf({ detail: problem, remedy }: Problem, name: string): Cause {
  const secure = `https://${name}`
  return { problem, remedy, name: problem.includes(secure) ? secure : name }
}

function causes(): Cause[] {
  const ofTexts = Object.values(VERDICT_TEXTS).flatMap((text) =>
    NAMES.map((name) => ({ problem: text(name), remedy: '', name })),
  )
  const ofProblems = NAMES.flatMap((name) =>
    problemsAt(name).flatMap((problem) => (problem ? [causeOf(problem, name)] : [])),
  )
  const ofStorage = (['full', 'damaged', 'unwritable'] as const).map((fault) => ({
    problem: describeFault(fault),
    remedy: '',
  }))
  return [...ofTexts, ...ofProblems, ...ofStorage]
}

const sentencesOf = (text: string) => text.split(/(?<=[.:;]) /)

describe('every text of the verdict', () => {
  it.each([undefined, '998 more services'])('fits into a headline, with others: %s', (others) => {
    for (const cause of causes()) {
      for (const serving of SERVINGS) {
        const { headline } = verdictFrom(serving, [{ ...cause, others }])
        expect(headline.length, headline).toBeLessThanOrEqual(MAX_HEADLINE)
        expect(headline).toMatch(/[.…]$/)
        // The kind of problem is never cut away with a name of usual length.
        if (!cause.name?.includes(LONG)) expect(headline, cause.problem).not.toContain('…')
      }
    }
  })

  it('is plain English: no hidden subjects, short sentences', () => {
    for (const { problem, remedy } of causes()) {
      expect(`${problem} ${remedy}`).not.toMatch(HIDDEN)
      for (const sentence of sentencesOf(`${problem}. ${remedy}`)) {
        expect(sentence.split(' ').length, sentence).toBeLessThanOrEqual(MAX_WORDS)
      }
    }
  })

  it('keeps the name of a problem readable, whatever its length', () => {
    const { headline } = verdictFrom('0 of 3 tunnels work.', [
      { problem: `${LONG} refuses connections`, remedy: '', name: LONG },
    ])
    expect(headline).toMatch(/^0 of 3 tunnels work\. long-name-[\w-]+… refuses connections\.$/)
  })

  it.each([
    'gateway.example.com:4443 refuses connections',
    'gateway.example.com cannot be resolved by DNS',
    'localhost:8080 does not answer',
  ])('keeps a name at the start as it is, also one of another address: %s', (problem) => {
    const cause = { problem, remedy: 'Wait.', name: '10.0.0.1:4443' }
    expect(verdictFrom('No tunnels.', [cause])).toEqual({
      headline: `No tunnels. ${problem}.`,
      advice: [{ problem: `${problem}.`, remedy: 'Wait.' }],
    })
  })

  it('shows no more than three problems, each with its fix', () => {
    const some = ['a', 'b', 'c', 'd'].map((problem) => ({ problem, remedy: `fix ${problem}` }))
    const { advice } = verdictFrom('No tunnels.', [{ problem: 'connecting', remedy: '' }, ...some])
    expect(advice).toEqual([
      { problem: 'A.', remedy: 'Fix a.' },
      { problem: 'B.', remedy: 'Fix b.' },
      { problem: 'C.', remedy: 'Fix c.' },
    ])
  })
})

it('calls no condition by a word that a technician does not know', () => {
  expect(CONDITIONS.map((it) => it.replace('_', ' ')).join(', ')).toBe(
    'working, service down, service slow, busy, slow link, opening, checking, offline, refused, unverified',
  )
})
