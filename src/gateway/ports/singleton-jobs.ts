/** A job that one gateway runs for all. */
export interface SingletonJob {
  /** The job runs here from now on. */
  reclaim(): void
  release(): void | Promise<void>
}

/** Assigns each shared job to one gateway. */
export interface SingletonJobs {
  /** Runs a job here while it is assigned to this gateway. Two gateways may both run it for a moment. */
  share(name: string, duty: SingletonJob): void
  /** Whether a shared job runs here now. */
  isOurs(name: string): boolean
}

/** For a single gateway: it runs all jobs from the start. */
export class LocalJobs implements SingletonJobs {
  share(_name: string, duty: SingletonJob): void {
    duty.reclaim()
  }

  isOurs(): boolean {
    return true
  }
}
