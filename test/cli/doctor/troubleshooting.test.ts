import { it } from 'vitest'
import {
  authtokenLack,
  PASSED_AUTHTOKEN,
  withTokenPlace,
} from '../../../src/agent/authtoken-source.ts'
import {
  connectionProblem,
  foreignProblem,
  nameProblem,
  silenceProblem,
} from '../../../src/agent/probes/connection-problem.ts'
import type { Problem } from '../../../src/agent/problem.ts'
import { serviceProblem } from '../../../src/agent/service-error.ts'
import {
  refusedLinkText,
  refusedTunnelText,
  sentence,
  VERDICT_TEXTS,
} from '../../../src/agent/verdict.ts'
import { expectTable } from '../../helpers/document-part.ts'

const HOST = 'gateway.example.com'
const GATEWAY = `${HOST}:4443`
const TUNNEL = 'cam.site.example.com'
const failed = (code: string, where = GATEWAY) =>
  connectionProblem(where, Object.assign(new Error(code), { code }))

const LINK: readonly Problem[] = [
  failed('ENOTFOUND', HOST),
  failed('EAI_AGAIN', HOST),
  failed('ENETUNREACH'),
  failed('ECONNREFUSED'),
  failed('ECONNRESET'),
  silenceProblem(GATEWAY, 5_000),
  silenceProblem(GATEWAY, 5_000, true),
  failed('ERR_SSL_WRONG_VERSION_NUMBER'),
  failed('UNABLE_TO_VERIFY_LEAF_SIGNATURE'),
  nameProblem(GATEWAY, HOST, 'DNS:localhost'),
  foreignProblem(GATEWAY),
  authtokenLack(undefined, undefined),
  authtokenLack('/etc/credstore/svc-authtoken', undefined),
]
/** Codes of refusals of the link, then of a tunnel. */
const OF_LINK = [107, 636, 121]
const OF_TUNNEL = [316, 319, 334, 18021, 9026]

/** Words of the longest cell. */
const MAX_WORDS = 25

/** The sentences of a remedy, in cells that are quick to read. */
function cellsOf(remedy: string): string[] {
  const cells: string[][] = [[]]
  for (const text of remedy.split(/(?<=\.) /)) {
    const words = [...(cells.at(-1) ?? []), ...text.split(' ')]
    if (words.length <= MAX_WORDS) cells.pop()
    cells.push(words.length <= MAX_WORDS ? words : text.split(' '))
  }
  return cells.map((words) => words.join(' '))
}

const withCode = (code: number) => serviceProblem('', `ERR_NGROK_${code}`)

it('documents what status and doctor say about the link and the gateway, with the fix', () => {
  const shown = (text: string, { remedy }: Problem) => {
    const name = [HOST, TUNNEL].find((it) => text.startsWith(it))
    // Further steps of a fix are rows of their own.
    return cellsOf(remedy).map((cell, at) => [at === 0 ? sentence(text, name) : '', cell])
  }
  expectTable(
    'docs/guides/troubleshooting.md',
    'problems',
    ['sentence', 'fix'],
    [
      ...LINK.flatMap((problem) => shown(problem.detail, problem)),
      ...OF_LINK.flatMap((code) => {
        const problem = withTokenPlace(withCode(code), PASSED_AUTHTOKEN)
        return shown(refusedLinkText(problem.reason, problem.serviceCode), problem)
      }),
      ...shown(VERDICT_TEXTS.duplicate(), withCode(830)),
      ...OF_TUNNEL.flatMap((code) => {
        const problem = withCode(code)
        return shown(refusedTunnelText(problem.reason, TUNNEL), problem)
      }),
    ],
  )
})
