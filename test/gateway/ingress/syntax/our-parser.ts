import { BodyTracker } from '../../../../src/gateway/ingress/syntax/body-tracker.ts'
import {
  HEAD_LIMITS,
  HeadScanner,
  type ScannedHead,
} from '../../../../src/gateway/ingress/syntax/head-scanner.ts'
import { HttpSyntaxError, UNTIL_CLOSE } from '../../../../src/gateway/ingress/syntax/http-syntax.ts'
import { parseRequestHead } from '../../../../src/gateway/ingress/syntax/request-head.ts'
import { parseResponseHead } from '../../../../src/gateway/ingress/syntax/response-head.ts'
import type { ParsedBytes, ParsedMessage } from './llhttp.ts'

/** Our parsers over whole bytes, cut into chunks, with the answer in the shape of llhttp's. */
export function parseWithOurs(
  kind: 'request' | 'response',
  chunks: Buffer[],
  sender?: object,
): ParsedBytes {
  const reader = new MessageReader(kind, sender)
  try {
    for (const chunk of chunks) reader.read(chunk)
  } catch (error) {
    if (!(error instanceof HttpSyntaxError)) throw error
    return { messages: reader.messages, error: error.message }
  }
  reader.end()
  return { messages: reader.messages, error: undefined }
}

class MessageReader {
  readonly messages: ParsedMessage[] = []
  readonly #kind: 'request' | 'response'
  readonly #sender: object | undefined
  readonly #scanner: HeadScanner
  #body: BodyTracker | undefined
  #draft: Omit<ParsedMessage, 'body'> | undefined
  #untilClose = false
  #keepAlive = true
  #content: Buffer[] = []

  constructor(kind: 'request' | 'response', sender?: object) {
    this.#kind = kind
    this.#sender = sender
    this.#scanner = new HeadScanner(HEAD_LIMITS, kind)
  }

  read(chunk: Buffer): void {
    let at = 0
    // Nothing is read behind a message after which the connection closes.
    while (at < chunk.length && (this.#keepAlive || this.#body)) {
      if (!this.#body) {
        at = this.#scanner.scan(chunk, at, this.#sender)
        if (at === -1) return
        this.#startBody(this.#scanner.takeHead())
      }
      if (this.#body && !this.#body.isDone) at = this.#body.advance(chunk, at, this.#content)
      if (this.#body?.isDone) this.#complete()
    }
  }

  end(): void {
    if (this.#untilClose) this.#complete()
  }

  #startBody(scanned: ScannedHead): void {
    if (this.#kind === 'request') {
      const head = parseRequestHead(scanned)
      const line = scanned.line.slice(0, scanned.line.lastIndexOf(' '))
      this.#draft = { line, minorVersion: Number(head.version[2]), fields: scanned.fields }
      this.#body = new BodyTracker(head.framing)
      this.#keepAlive = head.keepAlive
    } else {
      const head = parseResponseHead(scanned, 'GET')
      const minorVersion = Number(scanned.line[7])
      this.#draft = { line: String(head.status), minorVersion, fields: scanned.fields }
      this.#body = new BodyTracker(head.framing)
      this.#keepAlive = head.keepAlive
      this.#untilClose = head.framing === UNTIL_CLOSE
    }
  }

  #complete(): void {
    if (!this.#draft) return
    const body = Buffer.concat(this.#content).toString('latin1')
    this.messages.push({ ...this.#draft, body })
    this.#draft = undefined
    this.#body = undefined
    this.#untilClose = false
    this.#content = []
  }
}
