import type { AgentCommand, AgentIdentity } from '../endpoints/connected-agent.ts'
import { ServiceError } from '../records/service-error.ts'
import { commandError, StreamType } from './control-message.ts'

interface CommandParts {
  /** For an agent that does not know the command, and for one that failed to obey it. */
  readonly codes: { readonly unsupported: number; readonly failed: number }
  /** What is sent; the SDK does not read a command that lacks a field. */
  readonly message: object
}

const COMMANDS: Readonly<Record<AgentCommand, CommandParts>> = {
  restart: { codes: { unsupported: 804, failed: 808 }, message: {} },
  stop: { codes: { unsupported: 805, failed: 807 }, message: {} },
  update: {
    codes: { unsupported: 806, failed: 809 },
    // The newest version with the same major number.
    message: { Version: '', PermitMajorVersion: false },
  },
}

/** Tells an agent to do something. Throws a ServiceError when it cannot or does not obey. */
export async function commandAgent(
  command: AgentCommand,
  identity: AgentIdentity,
  call: (type: number, message: object) => Promise<unknown>,
): Promise<void> {
  const { codes, message } = COMMANDS[command]
  const reason = refusalOf(command, identity)
  if (reason) throw new ServiceError(codes.unsupported, `The agent cannot ${command}: ${reason}`)
  const error = commandError(await call(StreamType[command], message))
  if (error) throw new ServiceError(codes.failed, `The agent failed to ${command}: ${error}`)
}

/** An agent of ours listens to updates for the sake of notices; what is really one it does not obey. */
function refusalOf(command: AgentCommand, { instance, unsupported }: AgentIdentity): string {
  const isNoticed = command === 'update' && instance !== undefined
  return isNoticed ? 'self-update is not supported.' : unsupported[command]
}
