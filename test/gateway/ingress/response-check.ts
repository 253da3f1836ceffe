import type { RequestScript } from './exchange-script.ts'
import type { AnswerRecord } from './model-device.ts'

/** What a client has of the responses to its requests. */
export interface Received {
  readonly bytes: Buffer
  readonly ending: 'end' | 'reset' | undefined
  /** The requests whose head it has sent as a whole, in order. */
  readonly requests: readonly { readonly id: string; readonly script: RequestScript }[]
}

/** How one request was answered. */
export type Answered =
  | {
      readonly by: 'device' | 'gateway' | 'policy'
      readonly status: number
      readonly isWhole: boolean
    }
  | undefined

interface Head {
  readonly status: number
  readonly fields: ReadonlyMap<string, string>
  readonly end: number
}

/**
 * Reads what a client has received as the answers to its requests. Throws where there is more than
 * one for a request, one of another request, or one that ends cleanly and is not what was sent.
 */
export function checkResponses(
  { bytes, ending, requests }: Received,
  records: ReadonlyMap<string, AnswerRecord>,
): Answered[] {
  let at = 0
  const answered = requests.map(({ id, script }): Answered => {
    const head = finalHead(bytes, at, script)
    if (!head) {
      at = bytes.length
      return undefined
    }
    const { status, fields } = head
    const owner = fields.get('x-id')
    const by = owner !== undefined ? 'device' : fields.has('x-policy') ? 'policy' : 'gateway'
    if (owner !== undefined && owner !== id) throw new Error(`${id} got the response of ${owner}`)
    if (by === 'gateway' && !fields.has('ngrok-error-code')) {
      throw new Error(`${id} got a response of nobody: ${excerpt(bytes, at)}`)
    }
    const body = readBody(bytes, head, script, ending)
    at = body.end
    const record = records.get(id)
    if (by === 'device' && body.isWhole && !hasNoBody(head, script)) {
      if (!record?.isWhole) throw new Error(`${id} ends cleanly, and the device did not`)
      if (!body.content.equals(record.content)) {
        throw new Error(`${id} has ${body.content.length} of ${record.content.length} bytes`)
      }
    }
    return { by, status, isWhole: body.isWhole }
  })
  if (at < bytes.length) throw new Error(`more than was asked for: ${excerpt(bytes, at)}`)
  return answered
}

/** The next head that is no interim one; undefined when it has not come as a whole. */
function finalHead(bytes: Buffer, from: number, script: RequestScript): Head | undefined {
  const { minorVersion, body, expectsContinue, answer } = script
  const mayContinue = answer.saysContinue || (body !== 'none' && expectsContinue)
  for (let at = from; ; ) {
    const head = readHead(bytes, at)
    if (!head || head.status >= 200) return head
    if (!mayContinue) throw new Error('told to go on with a body that nobody announced')
    if (minorVersion === 0) throw new Error('an interim response for HTTP/1.0')
    at = head.end
  }
}

function readHead(bytes: Buffer, at: number): Head | undefined {
  const end = bytes.indexOf('\r\n\r\n', at)
  if (end === -1) return undefined
  const [line = '', ...rest] = bytes.toString('latin1', at, end).split('\r\n')
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1]
  if (status === undefined) throw new Error(`no response: ${excerpt(bytes, at)}`)
  const fields = new Map(
    rest.map((field) => {
      const [name = '', value = ''] = field.split(': ', 2)
      return [name.toLowerCase(), value]
    }),
  )
  return { status: Number(status), fields, end: end + 4 }
}

function hasNoBody({ status }: Head, { method }: RequestScript): boolean {
  return method === 'HEAD' || status === 204
}

function readBody(bytes: Buffer, head: Head, script: RequestScript, ending: Received['ending']) {
  const { fields, end: from } = head
  if (hasNoBody(head, script)) return { content: Buffer.alloc(0), end: from, isWhole: true }
  const length = fields.get('content-length')
  if (length !== undefined) {
    const end = Math.min(bytes.length, from + Number(length))
    return { content: bytes.subarray(from, end), end, isWhole: end - from === Number(length) }
  }
  if (fields.get('transfer-encoding') === 'chunked') return readChunks(bytes, from)
  return { content: bytes.subarray(from), end: bytes.length, isWhole: ending === 'end' }
}

function readChunks(bytes: Buffer, from: number) {
  const parts: Buffer[] = []
  for (let at = from; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const size =
      lineEnd === -1 ? Number.NaN : Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    const end = lineEnd + 2 + size + 2
    if (!(end <= bytes.length)) {
      return { content: Buffer.concat(parts), end: bytes.length, isWhole: false }
    }
    if (size === 0) return { content: Buffer.concat(parts), end, isWhole: true }
    parts.push(bytes.subarray(lineEnd + 2, end - 2))
    at = end
  }
}

function excerpt(bytes: Buffer, at: number): string {
  return JSON.stringify(bytes.toString('latin1', at, at + 200))
}
