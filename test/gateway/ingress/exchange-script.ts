import fc from 'fast-check'

/** What a policy of the model does with a request or a response; all but `now` come late. */
export type Verdict = 'now' | 'continue' | 'respond' | 'close' | 'fail' | 'read-body'

/** What the device does when it has answered as much as it wants. */
export type Ending = 'whole' | 'break' | 'reset' | 'stall' | 'surplus'

export interface AnswerScript {
  readonly framing: 'counted' | 'chunked' | 'until-close' | 'none'
  readonly bytes: number
  readonly pieces: number
  readonly ending: Ending
  /** Of the pieces, how many come before an ending other than a whole one. */
  readonly piecesSent: number
  /** Begins before the request's body is through. */
  readonly isEarly: boolean
  readonly saysContinue: boolean
  readonly keepAlive: boolean
}

export interface RequestScript {
  readonly method: 'GET' | 'POST' | 'HEAD'
  readonly minorVersion: 0 | 1
  readonly close: boolean
  /** With a policy, or at the endpoint that has none. */
  readonly isJudged: boolean
  readonly body: 'none' | 'counted' | 'chunked' | 'broken-chunk'
  readonly bodyBytes: number
  readonly bodyPieces: number
  /** Of the pieces, how many are sent; a client that has stopped there sends nothing behind them. */
  readonly bodyPiecesSent: number
  readonly expectsContinue: boolean
  readonly onRequest: Verdict
  readonly onResponse: Verdict
  readonly answer: AnswerScript
}

/** One connection of a client, with all that the others do on its account. */
export interface ClientScript {
  readonly requests: readonly RequestScript[]
  /** Bytes that it reads when it is its turn; with `readsUpTo`, it stops for good behind so many. */
  readonly readStep: number
  readonly readsUpTo: number
  /** What it does after so many of its turns. */
  readonly leaving: 'stays' | 'half-closes' | 'resets'
  readonly leavesAt: number
}

const VERDICTS: readonly Verdict[] = ['now', 'continue', 'respond', 'close', 'fail', 'read-body']
const often = <T>(usual: T, ...rest: readonly T[]) =>
  fc.oneof({ weight: 3, arbitrary: fc.constant(usual) }, fc.constantFrom(usual, ...rest))

const answerScript: fc.Arbitrary<AnswerScript> = fc.record({
  framing: fc.constantFrom('counted', 'chunked', 'until-close', 'none'),
  bytes: fc.constantFrom(0, 5, 1_000, 20_000, 70_000),
  pieces: fc.integer({ min: 1, max: 4 }),
  ending: often<Ending>('whole', 'break', 'reset', 'stall', 'surplus'),
  piecesSent: fc.integer({ min: 0, max: 4 }),
  isEarly: fc.boolean(),
  saysContinue: fc.boolean(),
  keepAlive: often(true, false),
})

const requestScript: fc.Arbitrary<RequestScript> = fc
  .record({
    method: fc.constantFrom('GET', 'POST', 'HEAD'),
    minorVersion: often<0 | 1>(1, 0),
    close: often(false, true),
    isJudged: often(true, false),
    body: fc.constantFrom('none', 'counted', 'chunked', 'broken-chunk'),
    bodyBytes: fc.constantFrom(1, 30, 2_000, 9_000),
    bodyPieces: fc.integer({ min: 1, max: 4 }),
    bodyPiecesSent: often(4, 0, 1, 2, 3),
    expectsContinue: often(false, true),
    onRequest: often<Verdict>('now', ...VERDICTS),
    onResponse: often<Verdict>('continue', ...VERDICTS),
    answer: answerScript,
  } as const)
  // A request with a body is a POST, and HTTP/1.0 knows no chunks.
  .map((script) => {
    const body = script.minorVersion === 0 && script.body !== 'none' ? 'counted' : script.body
    return script.method === 'POST' ? { ...script, body } : { ...script, body: 'none' }
  })

export const clientScript: fc.Arbitrary<ClientScript> = fc.record({
  requests: fc.array(requestScript, { minLength: 1, maxLength: 3 }),
  readStep: fc.constantFrom(700, 6_000, 1_000_000),
  readsUpTo: often(Number.POSITIVE_INFINITY, 0, 400, 20_000),
  leaving: often('stays', 'half-closes', 'resets'),
  leavesAt: fc.integer({ min: 0, max: 40 }),
})

/** The bytes of a body, which tell whose they are. */
export function contentOf(id: string, bytes: number): Buffer {
  return Buffer.alloc(bytes, `${id};`)
}

/** Cuts into at most so many pieces, none of which is empty. */
export function cut(bytes: Buffer, pieces: number): Buffer[] {
  const size = Math.ceil(bytes.length / pieces)
  const parts = Array.from({ length: pieces }, (_, at) =>
    bytes.subarray(at * size, (at + 1) * size),
  )
  return parts.filter(({ length }) => length > 0)
}

/** Puts a content into chunks as long as its pieces, with the last one behind them. */
export function chunked(content: Buffer, pieces: number): Buffer {
  const chunks = cut(content, pieces).map(
    (piece) => `${piece.length.toString(16)}\r\n${piece.toString('latin1')}\r\n`,
  )
  return Buffer.from(`${chunks.join('')}0\r\n\r\n`, 'latin1')
}

/** What a client sends: a head, then the pieces of a body. */
export function encodeRequest(id: string, script: RequestScript): [head: Buffer, ...Buffer[]] {
  const { method, minorVersion, body, bodyBytes, bodyPieces, expectsContinue } = script
  const fields = [`Host: ${script.isJudged ? 'a' : 'b'}.test`]
  if (script.close) fields.push('Connection: close')
  else if (minorVersion === 0) fields.push('Connection: keep-alive')
  if (body === 'counted') fields.push(`Content-Length: ${bodyBytes}`)
  else if (body !== 'none') fields.push('Transfer-Encoding: chunked')
  if (body !== 'none' && expectsContinue) fields.push('Expect: 100-continue')
  const head = `${method} /${id} HTTP/1.${minorVersion}\r\n${fields.join('\r\n')}\r\n\r\n`
  return [Buffer.from(head), ...cut(bodyOf(id, script), bodyPieces)]
}

/** The body of a request as framed. */
export function bodyOf(id: string, { body, bodyBytes, bodyPieces }: RequestScript): Buffer {
  if (body === 'none') return Buffer.alloc(0)
  const content = contentOf(id, bodyBytes)
  if (body === 'counted') return content
  const framed = chunked(content, bodyPieces)
  return body === 'chunked'
    ? framed
    : Buffer.from(framed.toString('latin1').replace(/0\r\n\r\n$/, 'nonsense'))
}
