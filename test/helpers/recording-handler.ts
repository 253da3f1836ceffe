import type { MuxadoError } from '../../src/muxado/error-code.ts'
import type { StreamHandler } from '../../src/muxado/stream.ts'

/** A stream handler that writes down what it hears: `data abc`, `end`, `drain`, `close reason`. */
export class RecordingHandler implements StreamHandler {
  readonly events: string[] = []
  error: MuxadoError | undefined

  get isClosed(): boolean {
    return this.events.at(-1)?.startsWith('close') ?? false
  }

  onData(chunk: Buffer): void {
    this.events.push(`data ${chunk.toString('latin1')}`)
  }

  onEnd(): void {
    this.events.push('end')
  }

  onDrain(): void {
    this.events.push('drain')
  }

  onClose(error: MuxadoError | undefined): void {
    this.error = error
    this.events.push(error ? `close ${error.reason}` : 'close')
  }
}
