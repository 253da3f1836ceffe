import { readFileSync } from 'node:fs'
import { Secret } from '../../../base/secret.ts'
import { DatabaseError } from './database-error.ts'

const MAX_BYTES = 4_096

/** Source of the password: the URL, or a file that is read for each connection. */
export interface PasswordSource {
  readonly password: Secret | undefined
  readonly passwordPath: string | undefined
}

/** The current password. Throws a DatabaseError if there is none. */
export function readPassword({ password, passwordPath }: PasswordSource): Secret {
  if (passwordPath !== undefined) return fromFile(passwordPath)
  if (password) return password
  throw new DatabaseError('database-password', 'a password is required, but none is set')
}

/** The file's first line: editors end it with a newline. */
function fromFile(path: string): Secret {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new DatabaseError('database-password', `the password file cannot be read (${code})`, {
      cause: code,
    })
  }
  const [line = ''] = text.slice(0, MAX_BYTES).split(/\r?\n/)
  if (line === '') throw new DatabaseError('database-password', 'the password file is empty')
  return new Secret(line)
}
