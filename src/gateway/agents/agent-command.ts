import type { AgentCommand } from '../endpoints/connected-agent.ts'

interface CommandParts {
  /** For an agent that does not know the command, and for one that failed to obey it. */
  readonly codes: { readonly unsupported: number; readonly failed: number }
  /** What is sent; the SDK does not read a command that lacks a field. */
  readonly message: object
}

/** What agents can be told to do. */
export const COMMANDS: Readonly<Record<AgentCommand, CommandParts>> = {
  restart: { codes: { unsupported: 804, failed: 808 }, message: {} },
  stop: { codes: { unsupported: 805, failed: 807 }, message: {} },
  update: {
    codes: { unsupported: 806, failed: 809 },
    // The newest version with the same major number.
    message: { Version: '', PermitMajorVersion: false },
  },
}
