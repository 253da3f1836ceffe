import { readFileSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import { Secret } from '../base/secret.ts'
import { TOKEN_FORM } from './token-form.ts'

/** What is at the path of the file; `unreadable` also when nobody can tell. */
export type OwnerTokenState = Secret | 'missing' | 'unreadable'

/** `data/api-token`: the plain text of the owner's token, for this user alone (0600). */
export class OwnerTokenFile {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /** A file that holds no token counts as missing. */
  read(): OwnerTokenState {
    try {
      const text = readFileSync(this.path, 'utf8').trim()
      return TOKEN_FORM.test(text) ? new Secret(text) : 'missing'
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'missing' : 'unreadable'
    }
  }

  write(token: Secret): void {
    writeFileDurably(this.path, `${token.reveal()}\n`)
  }

  remove(): void {
    rmSync(this.path, { force: true })
    syncFolder(dirname(this.path))
  }
}
