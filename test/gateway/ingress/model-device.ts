import { ErrorCode } from '../../../src/muxado/error-code.ts'
import type { Stream } from '../../../src/muxado/stream.ts'
import {
  type AnswerScript,
  bodyOf,
  chunked,
  contentOf,
  cut,
  type RequestScript,
} from './exchange-script.ts'

const HEADER_LENGTH_BYTES = 8

/** What became of an answer of the device. */
export interface AnswerRecord {
  readonly content: Buffer
  /** All of it was sent, and it ended as it said. */
  isWhole: boolean
}

/** An answer under way. Each `step` does the next thing of its script. */
interface Answer {
  readonly script: RequestScript
  readonly pieces: Buffer[]
  readonly record: AnswerRecord
  piecesSent: number
  isBodyIn: boolean
}

/** One stream of the model device: reads requests, answers each as its script says, tells what is wrong. */
export class DeviceStream {
  readonly #stream: Stream
  readonly #scripts: ReadonlyMap<string, RequestScript>
  readonly #records: Map<string, AnswerRecord>
  readonly #problems: string[]
  #input = Buffer.alloc(0)
  #hasHeader = false
  #answer: Answer | undefined
  #bodyLeft = 0
  #isOver = false

  constructor(
    stream: Stream,
    scripts: ReadonlyMap<string, RequestScript>,
    records: Map<string, AnswerRecord>,
    problems: string[],
  ) {
    this.#problems = problems
    this.#stream = stream
    this.#scripts = scripts
    this.#records = records
    stream.handler = {
      onData: (chunk) => {
        stream.release(chunk.length)
        this.#input = Buffer.concat([this.#input, chunk])
        this.#read()
      },
      // As the SDK: the service's connection is closed, and its end comes back.
      onEnd: () => this.#end(),
      onDrain() {},
      onClose: () => {
        this.#isOver = true
      },
    }
  }

  /** Whether `step` does something. */
  get isBusy(): boolean {
    const answer = this.#answer
    if (this.#isOver || !answer) return false
    return answer.isBodyIn || answer.script.answer.isEarly
  }

  /** Closes a connection that is not used. */
  closeIdle(): void {
    if (!this.#answer && this.#hasHeader) this.#end()
  }

  step(): void {
    const answer = this.#answer
    if (!answer || !this.isBusy) return
    const { ending, piecesSent } = answer.script.answer
    const isCut = ending === 'break' || ending === 'reset' || ending === 'stall'
    if (isCut && answer.piecesSent >= piecesSent) {
      this.#breakOff(answer.script.answer)
      return
    }
    const piece = answer.pieces[answer.piecesSent]
    answer.piecesSent += 1
    if (piece && piece.length > 0) this.#stream.write(piece)
    if (answer.piecesSent >= answer.pieces.length) this.#complete(answer)
  }

  #breakOff({ ending, framing }: AnswerScript): void {
    if (ending === 'stall') return
    // Where the end of the stream is the end of the body, only a reset breaks it off.
    if (ending === 'reset' || framing === 'until-close') {
      this.#isOver = true
      this.#stream.reset(ErrorCode.internal)
    } else {
      this.#end()
    }
  }

  #complete({ script, record }: Answer): void {
    record.isWhole = true
    const { framing, keepAlive } = script.answer
    this.#answer = undefined
    if (framing === 'until-close' || !keepAlive) this.#end()
    else this.#read()
  }

  #end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#stream.end()
  }

  #read(): void {
    if (this.#isOver) return
    if (!this.#hasHeader) {
      if (this.#input.length < HEADER_LENGTH_BYTES) return
      const length = HEADER_LENGTH_BYTES + Number(this.#input.readBigInt64LE())
      if (this.#input.length < length) return
      this.#input = this.#input.subarray(length)
      this.#hasHeader = true
    }
    this.#takeBody()
    if (!this.#answer && this.#bodyLeft === 0) this.#readHead()
    this.#takeBody()
    if (this.#answer) this.#answer.isBodyIn = this.#bodyLeft === 0
  }

  #takeBody(): void {
    const taken = Math.min(this.#bodyLeft, this.#input.length)
    this.#bodyLeft -= taken
    this.#input = this.#input.subarray(taken)
  }

  #readHead(): void {
    const end = this.#input.indexOf('\r\n\r\n')
    if (end === -1) return
    const head = this.#input.toString('latin1', 0, end)
    this.#input = this.#input.subarray(end + 4)
    const id = head.split(' ')[1]?.slice(1) ?? ''
    const script = this.#scripts.get(id)
    if (!script) {
      this.#problems.push(`a request that nobody sent: ${head}`)
      return
    }
    const content = contentOf(id, script.answer.framing === 'none' ? 0 : script.answer.bytes)
    const record = { content, isWhole: false }
    this.#records.set(id, record)
    this.#bodyLeft = bodyOf(id, script).length
    this.#answer = {
      script,
      pieces: encodeAnswer(id, script, content),
      record,
      piecesSent: 0,
      isBodyIn: false,
    }
  }
}

const SURPLUS = Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold')

/** The head, then the pieces of the body; a surplus comes with the last of them. */
function encodeAnswer(id: string, { method, answer }: RequestScript, content: Buffer): Buffer[] {
  const { framing, pieces, ending, keepAlive, saysContinue } = answer
  const fields = [`x-id: ${id}`]
  if (framing === 'counted') fields.push(`Content-Length: ${content.length}`)
  if (framing === 'chunked') fields.push('Transfer-Encoding: chunked')
  if (!keepAlive) fields.push('Connection: close')
  const status = framing === 'none' ? '204 No Content' : '200 OK'
  const interim = saysContinue ? 'HTTP/1.1 100 Continue\r\n\r\n' : ''
  const head = Buffer.from(`${interim}HTTP/1.1 ${status}\r\n${fields.join('\r\n')}\r\n\r\n`)
  const hasBody = method !== 'HEAD' && framing !== 'none'
  const body = framing === 'chunked' ? chunked(content, pieces) : content
  const parts = [head, ...(hasBody ? cut(body, pieces) : [])]
  if (ending === 'surplus' && framing !== 'until-close') {
    parts.push(Buffer.concat([parts.pop() as Buffer, SURPLUS]))
  }
  return parts
}
