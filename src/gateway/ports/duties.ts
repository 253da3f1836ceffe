/** Work that one gateway of all does. */
export interface Duty {
  /** From now on it is done here. */
  reclaim(): void
  release(): void | Promise<void>
}

/** Divides the work that one gateway does for all among them. */
export interface Duties {
  /** Has it done here while this gateway is the one for it; two gateways may both do it for a moment. */
  share(name: string, duty: Duty): void
  /** Whether a shared duty is done here now. */
  isOurs(name: string): boolean
}

/** A gateway alone does all of it, from the start. */
export class OwnDuties implements Duties {
  share(_name: string, duty: Duty): void {
    duty.reclaim()
  }

  isOurs(): boolean {
    return true
  }
}
