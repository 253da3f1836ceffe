import { readFileSync } from 'node:fs'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import { StartError } from '../../base/app-error.ts'
import { Secret } from '../../base/secret.ts'
import type { CommandContext } from '../command-context.ts'
import { askHidden, canAsk } from '../local/prompt.ts'
import { refusalOf } from './backup-file.ts'

const MIN_CHARACTERS = 12
const NOTHING = 'No passphrase was entered.'

/** Reads a passphrase from a file; `-`: standard input. Throws a StartError. */
export async function readPassphrase(path: string): Promise<Secret> {
  const name = path === '-' ? 'Standard input' : path
  let content: string
  try {
    content = path === '-' ? await text(process.stdin) : readFileSync(path, 'utf8')
  } catch (error) {
    throw refusalOf(`Cannot read ${path}`, error)
  }
  const passphrase = content.replace(/\r?\n$/, '')
  if (passphrase === '') throw new StartError(`${name} contains no passphrase.`)
  return new Secret(passphrase)
}

/** Throws a StartError for a passphrase that can be guessed. */
export function requireStrong(passphrase: Secret): Secret {
  if (passphrase.reveal().length >= MIN_CHARACTERS) return passphrase
  throw new StartError(`The passphrase must have at least ${MIN_CHARACTERS} characters.`)
}

/** Asks at the terminal, twice for a new passphrase. Undefined without a terminal. */
export async function askPassphrase(
  context: Pick<CommandContext, 'stderr' | 'stop'>,
  { isNew }: { readonly isNew: boolean },
): Promise<Secret | undefined> {
  if (!canAsk()) return undefined
  const first = await askHidden(context, 'Passphrase: ', NOTHING)
  if (isNew) {
    requireStrong(new Secret(first))
    if ((await askHidden(context, 'Passphrase again: ', NOTHING)) !== first) {
      throw new StartError('The passphrases differ.')
    }
  }
  return new Secret(first)
}
