//! Which layer of the way that data takes a function of the kernel is of.
//!
//! The innermost function of a sample decides. Small helpers that everything calls say nothing of
//! the layer and leave it to their caller ([`CALLER`]). There is no layer for the rest: what is in
//! none is `unmapped`, and counted as such. docs/layers.md is this table for people.

use std::collections::HashMap;
use std::sync::OnceLock;

use wirecost_model::observe::CRYPTO;

use crate::sampler::Frame;

/// A layer and what is in it.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) holds: &'static str,
    /// Functions without their leading underscores, with blanks between them; with `*` at the end,
    /// all that begin so. Of several that fit a name the longest counts.
    functions: &'static str,
    /// Modules of the kernel: of their functions those that no layer names.
    modules: &'static str,
}

pub(crate) const APPLICATION: &str = "application";
pub(crate) const OBSERVER: &str = "observer";
const TLS: &str = "TLS";

/// All of user space is the first, what a program calls in libraries included; but for [`LIBRARIES`].
pub(crate) const ALL: &[Layer] = &[
    Layer {
        name: APPLICATION,
        holds: "user space: the program and its libraries",
        functions: "",
        modules: "",
    },
    Layer {
        name: "syscall entry",
        holds: "kernel entry and exit, and dispatch of the system call",
        functions: "
            arch_exit_to_user_mode* arm64_sys_* clear_bhb_loop do_el0_svc do_fast_syscall*
            do_int80* do_syscall_64 do_syscall_x64 el0_svc* el0t_64_sync* entry_INT80*
            entry_SYSCALL* entry_SYSENTER* entry_ibpb* exit_to_user_mode* fpregs_* ia32_sys_*
            invoke_syscall* irqentry_exit_to_user_mode* restore_fpregs* ret_from_fork*
            ret_to_user* rseq_* se_sys_* switch_fpu_return syscall_* task_work_* x64_sys_*
            x86_sys_*",
        modules: "",
    },
    Layer {
        name: "copy",
        holds: "moving bytes between user space, pages and socket buffers; checksums during the copy",
        functions: "
            access_ok* arch_copy_* check_heap_object* check_object_size check_stack_object
            clear_user* copy_folio_from_iter* copy_from_* copy_iov_* copy_mc_* copy_page*
            copy_struct_from_user copy_to_* copy_user_* csum_* do_csum get_user_* import_*
            iov_iter_* iovec_* ip_generic_getfrag iterate_and_advance* memcg_kmem_*_iter memcpy*
            memmove* memset* put_user_* rep_movs* rep_stos* sanitize_* simple_copy_to_iter
            skb_checksum* skb_copy_and_csum* skb_copy_bits skb_copy_datagram* skb_datagram_iter
            skb_splice_from_iter sock_fast_copy* strncpy_from_user strnlen_user
            unix_stream_read_actor virt_addr_valid zerocopy_*",
        modules: "",
    },
    Layer {
        name: "socket",
        holds: "code shared by all protocols between system call and transport; Unix, packet and other \
                local sockets",
        functions: "
            copy_msghdr* csk_wait* datagram_poll* do_accept do_sock_* do_sockopt* get_rmem0*
            get_wmem0* inet6_create inet6_getname inet6_recvmsg inet6_release inet6_sendmsg
            inet_accept inet_autobind inet_bind inet_bind_sk inet_create inet_dgram_connect
            inet_getname inet_ioctl inet_listen inet_recvmsg inet_release inet_send_prepare
            inet_sendmsg inet_shutdown inet_splice_eof inet_stream_connect init_sock* kcm_*
            lock_sock_* move_addr_* packet_* proto_* release_sock scm_* sendmsg_* sk_*
            skb_recv_* skb_set_owner_* skb_try_recv_* skb_unlink skb_wait_* sock_* sockfd_*
            sys_accept* sys_bind* sys_connect* sys_getpeername* sys_getsockname* sys_getsockopt*
            sys_listen* sys_recv* sys_send* sys_setsockopt* sys_shutdown* sys_socket*
            sys_socketpair tpacket_* unix_* vsock_* wait_for_unix_gc wait_woken
            woken_wake_function xsk_* zap_sock*",
        modules: "af_packet unix vsock",
    },
    Layer {
        name: "TCP/UDP",
        holds: "transport: TCP with its congestion control, UDP, SCTP, and their socket tables",
        functions: "
            bbr_* bictcp_* cookie_* cubictcp_* dctcp_* htcp_* inet6_* inet_* lookup_reuseport*
            minmax_running_* mptcp_* quic_* reqsk_* reqsk_queue* reuseport_* sctp_* secure_dccp*
            secure_ipv4* secure_tcp* sk_forced_mem_schedule sk_stream_alloc* skb_consume_udp
            skb_still_in_host_queue tcp4_* tcp6_* tcp_* tcpv6_* udp4_* udp6_* udp_* udplite*
            udpv6_* vegas_* westwood_*",
        modules: "dccp mptcp sctp tcp_bbr tcp_bic tcp_cubic tcp_dctcp",
    },
    Layer {
        name: "IP",
        holds: "IPv4 and IPv6 with routes, neighbours, ICMP, tunnels and IPsec",
        functions: "
            addrconf_* arp_* dst_* esp_* eth_header* fib6_* fib_* find_exception gre_* icmp6_*
            icmp_* icmpv6_* igmp_* inet_addr_type* inet_getpeer* inet_gso_segment
            inet_lookup_ifaddr* inet_peer* inetpeer_* ip6_* ip6addrlbl* ip_* ip_mc_* ipcomp*
            ipip_* ipv4_* ipv6_* ipv6_chk* ipv6_gso* l3mdev_* mld_* ndisc_* neigh_* raw6_*
            raw_local_deliver raw_rcv* raw_send* raw_v4* rt6_* rt_* rt_cache* rt_genid* seg6_*
            skb_dst_* skb_pull_rcsum xfrm4_* xfrm6_* xfrm_*",
        modules: "ip6_tunnel ip_gre ip_tunnel ipip ipv6 sit",
    },
    Layer {
        name: "netfilter",
        holds: "nftables, iptables, connection tracking, NAT, IPVS",
        functions: "
            arpt_* conntrack_* ctnetlink_* destroy_conntrack early_drop ebt_* gc_worker
            get_l4proto hash_conntrack* ip6_route_me_harder ip6t_* ip6table_* ip_route_me_harder
            ip_set_* ip_vs_* ipt_* iptable_* ipv4_confirm* ipv4_conntrack* ipv6_confirm*
            ipv6_conntrack* nat_* nf_* nfnetlink_* nfnl_* nfqnl_* nft_* nftables_* nfulnl_*
            resolve_normal_ct set_match_* skb_nfct* tcp_in_window xt_*",
        modules: "
            arp_tables ebtables ip6_tables ip6table_* ip_set* ip_tables ip_vs* ipt_* iptable_*
            nf_* nfnetlink* nft_* x_tables xt_*",
    },
    Layer {
        name: "qdisc",
        holds: "from IP to the driver: queue selection, segmentation (GSO), queueing disciplines and \
                classifiers",
        functions: "
            cake_* cls_* codel_* default_qdisc* dev_direct_xmit* dev_hard_start_xmit*
            dev_loopback_xmit dev_queue_xmit* dev_xmit_* dql_* fq_* gso_* harmonize_features
            htb_* ingress_* mq_* mqprio_* net_tx_action netdev_core_pick_tx netdev_pick_tx
            netem_* netif_schedule* netif_skb_features netif_xmit_* noop_* noqueue_*
            passthru_features_check pfifo_* prio_* psched_* qdisc_* sch_* sch_handle_* sfq_*
            skb_crc32c* skb_csum_hwoffload_help skb_gso_* skb_mac_gso_segment
            skb_network_protocol skb_segment* skb_tx_hash skb_warn_bad_offload tbf_* tc_* tcf_*
            tcp4_gso_segment tcp6_gso_segment tcp_gso_segment tcx_* udp4_ufo_fragment
            udp_gso_segment validate_xmit_* xmit_one xps_*",
        modules: "act_* cls_* sch_*",
    },
    Layer {
        name: "driver",
        holds: "hardware and software network devices and their rings",
        functions: "
            bnxt_* bond_* br_* dev_lstats* dev_sw_netstats* dummy_xmit e1000* ena_*
            eth_type_trans gro_cells_* gve_* hv_* i40e_* ice_* ifb_* igb_* igc_* ixgbe_*
            loopback_xmit macvlan_* mlx4_* mlx5_* mlx5e_* netdev_port_* netvsc_* ovs_*
            page_pool_* skb_clone_tx_timestamp skb_tstamp_tx tap_* team_* tg3_* tun_* veth_* vhost_* virtio_* virtnet_* virtqueue_* vlan_* vp_interrupt vp_notify* vring_*
            vxlan_* wg_* xdp_* xennet_*",
        modules: "
            8021q amd_xgbe aquantia atlantic be2net bna bnx2* bnxt_en bonding bridge cxgb*
            e1000* ena enic fm10k geneve gve hv_netvsc i40e iavf ice idpf ifb igb* igc ionic
            ipvlan ixgbe* liquidio macvlan mana mlx4_* mlx5_* mlxsw* nfp octeontx2* openvswitch
            qede* r8169 sfc* sky2 stmmac* team tg3 thunder* tun veth virtio_net virtio_pci
            vmxnet3 vxlan wireguard xen_netfront",
    },
    Layer {
        name: "DMA",
        holds: "mapping memory for devices: DMA API, IOMMU, bounce buffers",
        functions: "
            alloc_iova* amd_iommu_* arm_lpae_* arm_smmu_* debug_dma* dma_* fast_unmap_* free_iova*
            intel_iommu_* iommu_* iotlb_* iova_* page_pool_dma_* qi_flush_* qi_submit_* queue_iova swiotlb_* virtqueue_map_* virtqueue_unmap_*
            vring_map_* vring_unmap_*",
        modules: "amd_iommu intel_iommu",
    },
    Layer {
        name: "NAPI/GRO",
        holds: "receive: device polling, per-CPU backlog, steering (RPS), merging (GRO), delivery to the \
                protocol",
        functions: "
            busy_poll_* deliver_ptype* deliver_skb dev_gro_receive do_xdp_generic
            enqueue_to_backlog eth_gro_* flow_* flush_backlog generic_xdp* get_rps_cpu gro_*
            inet_gro_* ip_list_rcv* ip_sublist_rcv* ipv6_gro_* kick_defer_list* napi_* net_rps_*
            net_rx_action netdev_rx_* netif_receive_* netif_rx* process_backlog rps_*
            set_rps_cpu sk_busy_loop* skb_flow_* skb_get_hash* skb_gro_* tcp4_gro_* tcp6_gro_*
            tcp_gro_* trigger_rx_softirq udp4_gro_* udp6_gro_* udp_gro_*",
        modules: "",
    },
    Layer {
        name: "skb memory",
        holds: "socket buffers: allocating, building, cloning, freeing",
        functions: "
            alloc_skb* build_skb* consume_skb copy_skb_header finalize_skb_* get_netmem
            kfree_skb* kfree_skbmem kmalloc_reserve napi_alloc_* napi_build_skb napi_consume_skb
            napi_get_frags* napi_skb_cache_* napi_skb_free* net_zcopy_* netdev_alloc_*
            page_frag_* pskb_* put_netmem sk_page_frag_refill sk_skb_reason_drop sk_zerocopy*
            skb_* skbpoison* sock_alloc_send_* sock_efree sock_ofree sock_rfree sock_wfree
            tcp_stream_alloc_skb tcp_wfree",
        modules: "",
    },
    Layer {
        name: "locks",
        holds: "acquiring locks and waiting for them; futexes",
        functions: "
            do_futex do_raw_* down down_* futex_* get_futex_* kvm_kick_cpu kvm_wait lg_*
            lock_acquire* lock_release* lockref_* mutex_* native_queued_* osq_* percpu_down*
            percpu_up* pv_hash* pv_kick* pv_queued_* pv_unhash* pv_wait* queued_read_*
            queued_spin_* queued_write_* raw_callee_save* raw_read_* raw_spin_* raw_write_*
            rt_mutex_* rt_spin_* rwsem_* unqueue_me up up_read* up_write* ww_mutex_*",
        modules: "",
    },
    Layer {
        name: "scheduler",
        holds: "waking, selecting and switching tasks; work queues",
        functions: "
            activate_task add_wait_queue* attach_task* autoremove_wake_function
            available_idle_cpu avg_vruntime balance_callbacks balance_fair bit_wait* calc_delta*
            can_migrate* cgroup_rstat* check_preempt_* complete* cond_resched* context_switch
            cpu_startup_entry cpu_util* cpuacct_* cpus_share* cr4_* deactivate_task
            default_wake_function delayed_work_* dequeue_entit* dequeue_task* detach_task* dl_*
            do_task_dead do_wait_intr* double_rq* enqueue_entity enqueue_task* entity_*
            ep_autoremove_wake_function find_busiest* find_idlest_* finish_swait
            finish_task_switch finish_wait get_nohz_* hrtick_* idle_balance idle_cpu init_wait*
            insert_work* io_schedule* irq_work_queue* kick_process kthread* load_balance*
            migrate_* migration_* mm_cid_* move_linked_works newidle_balance nohz_* nr_iowait*
            pick_eevdf* pick_next_* pick_task* place_entity prb_* preempt_* preempt_schedule*
            prepare_task_switch prepare_to_swait* prepare_to_wait* process_one_work psi_*
            pull_task* put_prev_* pwq_* queue_delayed_work* queue_work* ref_rq*
            remove_wait_queue* requeue_delayed* resched_* reweight_* rq_* run_rebalance* sched_*
            sched_clock_cpu_idle* schedule schedule_* select_fallback_rq select_idle_*
            select_rq* select_task_rq* set_curr_if_polling* set_kthread* set_next_* set_task_cpu
            smpboot_* sugov_* swake_up* switch_mm* switch_to* task_* tg_* to_kthread
            try_to_block* try_to_wake_up ttwu_* update_blocked* update_cfs_* update_curr*
            update_deadline update_dl_* update_group* do_sched_* update_entity_lag update_load_* update_min_vruntime
            update_rq_clock* update_rt_* update_sd_* update_se vruntime_eligible wait_for_*
            wake_affine* wake_all_* wake_q_* wake_up* wakeup_preempt* worker_* wq_* yield_*",
        modules: "",
    },
    Layer {
        name: "timers",
        holds: "timers, the tick, and reading clocks",
        functions: "
            account_* add_timer* arch_timer_* calc_global_load* calc_wheel* calibrate_*
            call_timer_fn clock_* clockevents_* common_hrtimer* common_nsleep* cpu_clock*
            cputime_* current_kernel_time* del_timer* delay_* delayacct_* detach_if_pending
            detach_timer* do_clock_* do_nanosleep do_timer* dummy_timer enqueue_hrtimer
            enqueue_timer expire_timers fetch_next_timer* forward_timer_base get_jiffies*
            get_next_timer* get_timespec64 getboottime* getnstimeofday* hrtimer*
            internal_add_timer irqtime_* itimer_* jiffies* ktime_* kvm_clock* lapic_*
            local_clock* lock_hrtimer* lock_timer_base mod_timer* msecs_to_* nanosleep*
            native_calibrate* native_sched_clock* next_expiry* ns_to_* nsecs_to_*
            poll_select_set_timeout posix_* process_timeout profile_tick ptp_* put_timespec64
            pvclock_* read_hpet* read_hv_* read_tsc remove_hrtimer run_local_timers
            run_posix_cpu* run_timer* sched_clock* set_normalized* softlockup_* sys_clock*
            thread_group_*cputime* tick_* timekeeping_* timer_* timerqueue_* timespec64_*
            try_to_del_timer* tsc_* update_process_times update_wall_time usecs_to_* vtime_*
            watchdog_* x86_lapic*",
        modules: "",
    },
    Layer {
        name: "interrupts",
        holds: "entering and leaving interrupts and softirqs; inter-processor interrupts",
        functions: "
            ack_apic* acknowledge_* apic_* arch_irq* arch_send_* asm_common_* asm_exc_nmi*
            asm_sysvec_* asm_xen_* call_function_* call_on_irq_stack common_interrupt
            common_interrupt_return csd_* default_send_IPI* do_IRQ* do_idle_ipi
            do_interrupt_handler do_softirq* el0_interrupt el0t_64_irq* el1_interrupt
            el1h_64_irq* error_entry error_return exc_nmi* flush_smp_call* generic_exec_single
            generic_handle_* generic_smp_call* gic_* handle_edge_irq handle_fasteoi* handle_irq*
            handle_level* handle_percpu* handle_softirqs hv_apic* idtentry_* intel_ir_*
            invoke_softirq io_apic* ioapic_* ipi_* irq_* irq_enter* irq_exit* irqentry_*
            kick_ilb ksoftirqd* kvm_guest_apic* kvm_send_ipi* local_bh_* mask_*irq* msi_*
            native_apic* native_load_gs* native_send_call* native_smp_send* native_x2apic* nmi_*
            note_interrupt paranoid_* pci_msi* percpu_irq* raise_softirq* restore_regs*
            run_ksoftirqd send_call_function* should_wake_ksoftirqd smp_call_*
            smp_call_single_queue smp_send_* softirq_* spurious_* swapgs_* sync_regs sysvec_*
            tasklet_* unmask_*irq* wakeup_softirqd workqueue_softirq* x2apic_*",
        modules: "",
    },
    Layer {
        name: "idle loop",
        holds: "the idle task entering or leaving the halt; the halt itself is not a busy sample",
        functions: "
            acpi_idle* acpi_processor_* arch_cpu_idle* cpu_do_idle cpu_idle* cpuidle_* ct_cpu*
            ct_idle* ct_irq* ct_kernel_* ct_nmi* default_idle* do_idle haltpoll_* intel_idle*
            ladder_* menu_* mwait_* native_safe_halt poll_idle psci_* pv_native_safe_halt teo_*
            tick_nohz_get_sleep* tick_nohz_idle*",
        modules: "",
    },
    Layer {
        name: "RCU",
        holds: "read-copy-update: read-side sections, grace periods, deferred freeing",
        functions: "
            call_rcu* call_rcu_* call_srcu* dyntick_* force_qs* force_quiescent*
            inode_free_by_rcu invoke_rcu* kfree_rcu* kvfree_call_rcu kvfree_rcu* note_gp* rcu_*
            srcu_* sync_rcu* synchronize_*",
        modules: "",
    },
    Layer {
        name: "memory",
        holds: "kernel memory allocators (slabs, pages, per CPU) and cgroup accounting",
        functions: "
            account_obj_stock account_slab* add_to_free* alloc_contig* alloc_from_pcs*
            alloc_frozen* alloc_pages* alloc_slab* alloc_vmap* allocate_slab barn_* buddy_*
            build_detached_freelist cache_from_obj cgroup_* charge_memcg clear_highpages*
            clear_page* compact_* cond_accept* consume_obj_stock* consume_stock* css_*
            current_obj_cgroup deactivate_slab dec_node* dec_zone* decay_pcp*
            del_page_from_free* discard_slab drain_* expand find_vmap* first_zones_zonelist
            folio_batch* folios_put* fragmentation_* free_frozen_* free_large_* free_nonslab*
            free_one_page* free_page* free_pcp* free_percpu* free_slab* free_tail_page*
            free_to_p* free_unref* free_vmap* get_any_partial get_from_*partial* get_mem_cgroup*
            get_obj_cgroup* get_page_from_freelist get_partial_node get_pfnblock* get_vm_area*
            inc_node* inc_slabs* inc_zone* insert_vmap* is_vmalloc* kasan_* kernel_init_pages
            kfree kfree_const kfree_sensitive kmalloc* kmem_* kmemdup* kmsan_* krealloc* ksize
            kstrdup* kvfree kvmalloc* list_lru* list_lru_* lruvec_* damon_* lru_* mem_cgroup_* memcg1_* memcg_*
            memdup_* mempolicy_* mempool_* memzero_* merge_buddies* mod_lruvec* mod_memcg*
            mod_node_* mod_objcg* mod_zone* new_slab* next_zones* numa_* obj_cgroup_* object_*
            page_counter_* pcpu_* pcs_* percpu_alloc* policy_node* post_alloc_hook* prep_*page*
            propagate_* put_cpu_partial put_page* refill_* release_pages rmqueue* setup_object
            should_fail_alloc* should_failslab* shrink_* shuffle_freelist slab_* slub_*
            split_page stack_depot* stack_trace_* steal_suitable* strndup_user try_charge*
            uncharge_* unfreeze_* vfree* vm_enough* vmalloc* vmap_* wakeup_kswapd zone_*",
        modules: "",
    },
    Layer {
        name: "address space",
        holds: "page faults, mappings and page tables of processes, TLB flushes",
        functions: "
            add_mm_* alloc_anon_folio anon_vma* arch_tlb* asm_exc_page_fault bad_area*
            change_p*_range* change_protection* clear_flush* collapse_* copy_p*_range
            copy_present* count_memcg_event* do_anonymous_page do_brk* do_cow_fault do_fault*
            do_huge* do_kern_addr_fault do_madvise* do_mem_abort do_mmap* do_mprotect*
            do_munmap* do_numa_page do_page_fault do_read_fault do_set_pte* do_shared_fault
            do_swap* do_user_addr_fault do_vmi_* do_wp_page dup_mm* el0_da el0_ia el1_abort
            exc_page_fault fault_* faultin_* filemap_fault filemap_map_* find_vma* finish_fault
            flush_tlb* folio_add_* folio_remove_rmap* follow_* free_p4d* free_pgd* free_pgtables
            free_ptes* get_mmap_lock* get_unmapped_area* get_vma_policy get_user_pages* gup_* handle_mm_fault
            handle_pte_fault invalidate_user* irqentry_enter_page* khugepaged*
            lock_mm_and_find_vma lock_next_vma lock_vma* mab_* madvise_* mas_* may_expand*
            mm_account* mm_fault* mmap_* mmput* move_page* mt_* native_flush*
            next_uptodate_folio page_table_* page_vma* pagetable_* perf_event_mmap*_vma pgd_*
            pin_user* pmd_* pte_* ptep_* pud_* remove_vma* rmap_* set_pte* set_ptes* split_vma
            sync_mm_rss thp_* tlb_* try_to_unmap* unlink_anon* unlink_file_vma* unmap_*
            unpin_user* userfaultfd_* validate_mm* vm_* vma_* vmap_pages* vmf_* vms_* wp_page*
            zap_*",
        modules: "",
    },
    Layer {
        name: "files",
        holds: "descriptors, the virtual file system, page cache, pipes and splice, and the contents of \
                /proc and /sys",
        functions: "
            alloc_empty_file* alloc_fd* alloc_file* alloc_inode* anon_inode* atime_needs*
            balance_dirty* blkcg_maybe* btrfs_* buffered_* clear_inode close_fd* complete_walk
            cp_new_stat* cp_statx* create_pipe* current_time* d_* dcache_* dentry_*
            destroy_inode direct_splice* dnotify_* do_close* do_dentry_open do_dup*
            do_faccessat* do_fcntl* do_filp_open do_iocb* do_iter_* do_open* do_pipe* do_preadv*
            do_pwritev* do_readlinkat* do_readv* do_sendfile do_splice* do_statx* do_sys_open*
            do_tty* do_vfs_* do_writev* dput* drop_buffers drop_sb* errseq_* evict* expand_files ext4_*
            f2fs_* fasync_* fd_* fdget* fdput* fget* file_* file_ref_* fileattr_* filemap_*
            files_* filp_* filter_fs* find_get_* find_inode* folio_* folio_end* folio_mark*
            folio_unlock* folio_wait* format_decode fput* free_inode* from_kgid* from_kuid* fs_*
            fscrypt_* fsnotify_* generic_file* generic_fillattr generic_perform_write
            generic_permission generic_write* get_close_on_exec get_file* get_filesystem*
            get_pipe_info get_unused_fd* getname* i_callback iget* ihold ilookup* init_file
            init_once inode_* inode_init_once iomap_* iput* iter_file_splice* jbd2_*
            kernel_read* kernel_write* kernfs_* kill_fasync kiocb_* kobject_* ksys_*
            legitimize_* link_path_walk* lock_for_kill locks_* lookup_* make_kgid make_kuid
            make_vfs* map_id_* mark_page_accessed* max_files* may_lookup* may_open* mem_rw*
            mnt_* mntget mntput* n_tty* nd_jump* new_inode* new_sync_* noatime* nop_* number
            open_last* overlay* ovl_* page_cache_* page_put_link path_* pde_* percpu_counter_*
            pid_revalidate pipe_* pointer proc_* pty_* put_filesystem put_filp put_unused_fd
            rcu_walk* read_iter_null read_iter_zero read_null read_zero readahead* receive_fd*
            release_dentry* rw_copy* rw_verify_area scnprintf security_file_*_vfs seq_*
            set_close* set_fs_pwd shmem_* show_* simple_* snprintf sock_from_file_vfs splice_*
            splice_from_pipe* sprintf stat_* step_into* stream_open string string_nocheck
            super_* sys_fstat* sys_newfstat* sysfs_* task_dump* terminate_walk tmpfs_*
            touch_atime truncate_* try_to_unlazy* tty_* unlazy_* unmap_mapping* userns_*
            uuid_string vfs_* vscnprintf vsnprintf walk_component warn_unsupp* wb_* workingset_*
            write_begin* write_null xattr* xfs_* zero_user*",
        modules: "btrfs ext4 fuse jbd2 nfs overlay xfs",
    },
    Layer {
        name: "eventpoll",
        holds: "epoll, poll, select and eventfd",
        functions: "
            attach_epitem core_sys_select do_compat_epoll* do_epoll_* do_poll* do_pselect*
            do_select do_sys_poll ep_* epi_* eventfd_* eventpoll_* io_* io_uring_* kern_select
            poll_* pollwake restore_saved_sigmask* reverse_path* select_estimate_accuracy
            set_user_sigmask sigmask_* sys_ppoll*",
        modules: "",
    },
    Layer {
        name: "security",
        holds: "security modules, hooks, capabilities, seccomp, audit",
        functions: "
            aa_* apparmor_* audit_* avc_* bpf_lsm_* call_int_hook* cap_* capable* cred_has*
            current_check_access* evm_* file_has_perm* has_capability* hook_* ima_*
            inode_has_perm* integrity_* is_access_to* landlock_* lsm_* ns_capable* seccomp_*
            security_* sel_* selinux_* smack_* sock_has_perm* tomoyo_* yama_*",
        modules: "",
    },
    Layer {
        name: CRYPTO,
        holds: "ciphers, hashes and random numbers, in the kernel and in user-space libraries",
        functions: "
            add_interrupt_randomness add_timer_randomness aead_* aes* blake2s* chacha* credit_*
            crng_* crypto_* extract_*entropy* fast_mix gcm_* generic_gcm* get_rand* get_random_*
            ghash* hsiphash* mix_* poly1305* prandom_* random_* rdrand* scatterwalk_* sha1_*
            sha256_* sha512_* simd_* siphash* skcipher_* urandom_*",
        modules: "
            aesni_intel chacha20poly1305 gcm ghash_clmulni_intel ghash_generic libaes libchacha*",
    },
    Layer {
        name: TLS,
        holds: "records and handshakes without their ciphers: kTLS and user-space libraries",
        functions: "tls_*",
        modules: "tls",
    },
    Layer {
        name: "processes",
        holds: "starting and ending programs and threads, signals, credentials",
        functions: "
            alloc_pid arch_do_signal* begin_new_exec* bprm_* cgroup_exit cgroup_post_fork
            clone_* commit_creds copy_creds copy_process copy_thread* dec_rlimit*
            delayed_put_task* dequeue_signal do_coredump do_execve* do_exit do_group_exit
            do_notify_* do_prlimit* do_send_sig* do_sigaction do_sigaltstack* do_signal* do_wait
            dup_task* elf_* exec_* execve* exit_* find_get_pid* find_pid* find_vpid flush_old*
            force_sig* fork_* fpu_* free_pid free_task* get_pid* get_sigframe* get_signal*
            get_task* get_ucounts* getrusage* group_send* inc_rlimit* k_getrusage* kernel_clone
            kernel_wait* kill_* load_elf* mm_init* mm_release* mmdrop* padzero pid_* pidfd_*
            prctl_* prepare_creds prepare_signal proc_fork* ptrace_* put_cred* put_pid*
            put_task* put_ucounts* recalc_sigpending* release_task restore_sig* rt_sigreturn*
            save_fpregs* sched_fork_* search_binary_handler send_sig* send_signal*
            set_current_blocked* set_mm_exe* setup_arg_pages setup_rt_frame* signal_*
            sigprocmask sigqueue* sys_prctl* sys_rt_sig* task_pid* ucounts_* user_disable*
            wait_consider* wait_task* wants_signal x86_fsbase*",
        modules: "",
    },
    Layer {
        name: "block I/O",
        holds: "block devices and their queues",
        functions: "
            ahci_* ata_* bdev_* bh_* bio_* blk_* blkdev_* block_* bread* dd_* dm_* elv_*
            end_bio* end_buffer* end_page* getblk* md_* mpage_* nvme_* raid*_* sb_* sbitmap_*
            scsi_* sd_* submit_bh* submit_bio* virtblk_* wbt_*",
        modules: "dm_* nvme* raid* scsi_mod sd_mod virtio_blk virtio_scsi",
    },
    Layer {
        name: "network control",
        holds: "netlink; creating and querying devices and namespaces",
        functions: "
            call_netdevice* cleanup_net copy_net_ns default_device_exit* dev_change*
            dev_fetch_sw* dev_get_* dev_ifsioc* dev_ioctl* dev_seq_* dev_set_* dev_xdp_prog*
            do_setlink* ethtool_* genl_* get_net_ns* if_nlmsg* inet6_dump* inet6_fill_*
            inet6_rtm* inet_diag_* inet_dump* inet_fill_* inet_rtm* linkwatch_* net_generic*
            net_ns_* netdev_copy_name netdev_get* netdev_name* netlink_* nla_* nlmsg_* ops_*
            put_net* register_net* rtmsg_* rtnetlink_* rtnl_* setup_net* sock_diag_* strset_* snmp_*
            tcp_diag_* udp_diag_* unix_diag_* unregister_net* veth_get_stats64 veth_newlink",
        modules: "inet_diag netlink_diag tcp_diag udp_diag unix_diag",
    },
    Layer {
        name: "BPF",
        holds: "BPF programs outside tracepoints: traffic control, XDP, sockets, cgroups, security",
        functions: "
            adjust_*reg* arch_bpf_* bpf_prog_enter* bpf_prog_exit* array_map_* bpf_* bstr_printf* btf_* cg_sk* cgroup_bpf_*
            check_* convert_ctx* copy_verifier* do_check* htab_* is_state_visited*
            lookup_elem_raw* lookup_nulls_elem* mark_reg* percpu_array_map* pop_stack*
            push_stack* reg_bounds* resolve_pseudo* sk_filter* states_equal* tnum_* trie_lookup*
            verbose",
        modules: "bpf",
    },
    Layer {
        name: OBSERVER,
        holds: "tracing and sampling, by wirecost and others: everything under a tracepoint, and \
                the thread that collects the samples",
        functions: "
            amd_pmu_* armpmu_* armv8pmu_* bpf_probe_read*
            bpf_raw_tp* bpf_trace_* copy_from_kernel_nofault* ctx_sched* event_filter*
            event_function* event_sched_* fentry__ ftrace_* function_trace* get_callchain*
            get_perf_callchain group_can* group_sched* intel_pmu_* kallsyms_* kprobe_* kprobes_*
            merge_sched* module_address_lookup native_read_pmc* orc_* perf_* rb_reserve*
            remote_function ring_buffer_* task_ctx_sched* trace_* traceiter_* tracing_*
            trampoline_* unwind_* uprobe_* uprobes_* visit_groups* x86_get_event* x86_pmu_*",
        modules: "",
    },
];

/// What in user space is not of the layer `application`.
struct Library {
    layer: &'static str,
    /// Functions that a program has in itself. What the compiler has put into a caller is told by the
    /// caller's name.
    functions: &'static str,
    /// Shared libraries all of whose functions are of the layer, however a path to them begins.
    files: &'static str,
}

const LIBRARIES: &[Library] = &[
    // ring, AWS-LC and OpenSSL. Their assembler has names of its own below those that are exported.
    Library {
        layer: CRYPTO,
        functions: "
            <ring::* ChaCha20_* EVP_* aead_* aes_* aesni_* aws_lc_* bn_mul4x_* bn_mulx4x_*
            bn_post4x_* bn_postx4x_* bn_sqr8x_* bn_sqrx8x_* chacha20_* ecp_nistz256_* fe4_* gcm_*
            ghash_* inline_x25519_* nistz384_* poly1305_* poly_hash_* ring::* ring_core_*
            sha256_block_* sha512_block_* vpaes_*",
        files: "libcrypto.so* libgcrypt.so* libhogweed.so* libmbedcrypto.so* libnettle.so*",
    },
    Library {
        layer: TLS,
        functions: "<rustls::* <webpki::* SSL_* rustls::* webpki::*",
        files: "libgnutls.so* libmbedtls.so* libssl.so*",
    },
];

/// Helpers that everything calls: their caller decides.
///
/// Among them are functions that switch interrupts on. A timer's interrupt that came due while they
/// were off is taken there, so the time is of what was done with interrupts off, not of a lock:
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/locking/spinlock.c#L192>.
pub(crate) const CALLER: &str = "
    SCT__* assoc_array* atomic_notifier* bcmp bitmap_* bsearch cfi_* clear_bit* const_udelay
    cpumask_* crc32* current_is_* debug_smp_processor* div64_* do_raw_spin_unlock find_first_*
    find_next_* find_nth* get_cpu_* hash_* hweight* ida_* idr_* interval_tree* jhash* kcfi_*
    klist_* kref_* list_add_valid* list_del_entry_valid* list_del_init* list_sort llist_*
    memchr* memcmp memscan native_irq* native_read_msr* native_save_fl native_write_msr*
    notifier_call_chain percpu_ref* radix_tree_* raw_notifier* raw_read_unlock_irq
    raw_read_unlock_irqrestore raw_spin_unlock_irq raw_spin_unlock_irqrestore
    raw_write_unlock_irq raw_write_unlock_irqrestore rb_* rdmsr* refcount_* retbleed_*
    rhashtable_* rht_* sg_* sized_str* smp_processor_id* sort_r srso_* stack_chk* stackleak_*
    static_call* static_key_* strchr* strcmp strcpy strlcpy strlen strncmp strncpy strnlen
    strrchr strscpy* strstr test_and_* ubsan_* udelay warn_thunk* wrmsr* x86_indirect_*
    x86_return_* xa_* xas_*";

/// Functions under which all is tracing.
const TRACING: &str = "
    bpf_trace_* ftrace_ops_* kprobe_dispatcher perf_event_overflow perf_swevent_* perf_trace_*
    trace_call_bpf* trace_event_raw* traceiter_* uprobe_dispatcher";

/// What a function says of the layer of a sample in which it is the innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Index into [`ALL`].
    Layer(usize),
    Caller,
    /// No layer names it.
    Nothing,
}

struct Patterns {
    exact: HashMap<&'static str, Verdict>,
    beginnings: HashMap<&'static str, Verdict>,
}

impl Patterns {
    fn add(&mut self, pattern: &'static str, verdict: Verdict) {
        match pattern.strip_suffix('*') {
            Some(beginning) => self.beginnings.insert(beginning, verdict),
            None => self.exact.insert(pattern, verdict),
        };
    }

    fn find(&self, name: &str) -> Option<Verdict> {
        self.exact.get(name).copied().or_else(|| {
            let longest_first = (1..=name.len()).rev().filter_map(|end| name.get(..end));
            longest_first.filter_map(|beginning| self.beginnings.get(beginning)).next().copied()
        })
    }
}

struct Table {
    functions: Patterns,
    modules: Patterns,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let empty = || Patterns { exact: HashMap::new(), beginnings: HashMap::new() };
        let mut table = Table { functions: empty(), modules: empty() };
        for (index, layer) in ALL.iter().enumerate() {
            let verdict = Verdict::Layer(index);
            words(layer.functions).for_each(|pattern| table.functions.add(pattern, verdict));
            words(layer.modules).for_each(|pattern| table.modules.add(pattern, verdict));
        }
        words(CALLER).for_each(|pattern| table.functions.add(pattern, Verdict::Caller));
        table
    })
}

fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split_ascii_whitespace()
}

fn bare(name: &str) -> &str {
    name.trim_start_matches('_')
}

fn fits_one(patterns: &'static str, name: &str) -> bool {
    words(patterns).any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    })
}

/// The layer of a function of user space.
fn of_user_space(frame: &Frame) -> &'static str {
    let file = frame.module.rsplit('/').next().unwrap_or_default();
    let name = bare(&frame.name);
    let holds =
        |library: &&Library| fits_one(library.files, file) || fits_one(library.functions, name);
    LIBRARIES.iter().find(holds).map_or(APPLICATION, |library| library.layer)
}

/// The verdict of a function, and whether all that it calls is tracing.
pub(crate) fn classify(frame: &Frame) -> (Verdict, bool) {
    if !frame.kernel {
        return (Verdict::Layer(index(of_user_space(frame))), false);
    }
    let name = bare(&frame.name);
    let tracing = fits_one(TRACING, name);
    let Table { functions, modules } = table();
    // Programs of BPF have the names that their authors gave them.
    let found = (frame.module != "bpf").then(|| functions.find(name)).flatten();
    let verdict = found.or_else(|| modules.find(&frame.module)).unwrap_or(Verdict::Nothing);
    (verdict, tracing)
}

/// Index of a layer that there is.
pub(crate) fn index(name: &str) -> usize {
    ALL.iter().position(|layer| layer.name == name).unwrap_or_default()
}

/// The layer of a sample, from what its functions say, innermost first.
pub(crate) fn layer_of(functions: impl Iterator<Item = (Verdict, bool)> + Clone) -> Option<usize> {
    if functions.clone().any(|(_, tracing)| tracing) {
        return Some(index(OBSERVER));
    }
    functions.map(|(verdict, _)| verdict).find(|verdict| *verdict != Verdict::Caller).and_then(
        |verdict| match verdict {
            Verdict::Layer(layer) => Some(layer),
            Verdict::Caller | Verdict::Nothing => None,
        },
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    use super::*;

    fn kernel(name: &str) -> Frame {
        Frame { name: name.to_owned(), module: "kernel".to_owned(), kernel: true }
    }

    fn layer(name: &str) -> Option<&'static str> {
        layer_of(std::iter::once(classify(&kernel(name)))).map(|layer| ALL[layer].name)
    }

    #[test]
    fn the_way_of_a_byte() {
        for (function, expected) in [
            ("entry_SYSCALL_64_after_hwframe", "syscall entry"),
            ("__x64_sys_sendto", "syscall entry"),
            ("__sys_sendto", "socket"),
            ("inet_sendmsg", "socket"),
            ("tcp_sendmsg_locked", "TCP/UDP"),
            ("__inet_lookup_established", "TCP/UDP"),
            ("_copy_from_iter", "copy"),
            ("__alloc_skb", "skb memory"),
            ("kmem_cache_alloc_node_noprof", "memory"),
            ("__ip_queue_xmit", "IP"),
            ("nf_hook_slow", "netfilter"),
            ("nft_do_chain", "netfilter"),
            ("__dev_queue_xmit", "qdisc"),
            ("veth_xmit", "driver"),
            ("dma_map_page_attrs", "DMA"),
            ("iommu_dma_map_page", "DMA"),
            ("page_pool_dma_map", "DMA"),
            ("page_pool_alloc_pages", "driver"),
            ("__napi_poll", "NAPI/GRO"),
            ("tcp_gro_receive", "NAPI/GRO"),
            ("sock_def_readable", "socket"),
            ("tls_sw_sendmsg", TLS),
            ("crypto_aead_encrypt", CRYPTO),
            ("aes_gcm_enc_update_vaes_avx10_256", CRYPTO),
            ("__poly1305_block", CRYPTO),
            ("try_to_wake_up", "scheduler"),
            ("_raw_spin_lock_bh", "locks"),
            ("read_tsc", "timers"),
            ("handle_softirqs", "interrupts"),
            ("do_epoll_wait", "eventpoll"),
            ("bpf_trace_run2", OBSERVER),
        ] {
            assert_eq!(layer(function), Some(expected), "{function}");
        }
        assert_eq!(layer("a_function_of_no_layer"), None);
    }

    #[test]
    fn helpers_leave_it_to_their_caller() {
        let of = |names: &[&str]| {
            let verdicts: Vec<_> = names.iter().map(|name| classify(&kernel(name))).collect();
            layer_of(verdicts.into_iter()).map(|layer| ALL[layer].name)
        };
        let stack = ["_raw_spin_unlock_irqrestore", "try_to_wake_up", "ep_poll_callback"];
        assert_eq!(of(&stack), Some("scheduler"));
        assert_eq!(of(&["__list_add_valid_or_report", "tcp_v4_rcv"]), Some("TCP/UDP"));
        // What no layer names does not go to whoever called it.
        assert_eq!(of(&["strange_function", "do_syscall_64"]), None);
        assert_eq!(
            of(&["ktime_get_mono_fast_ns", "bpf_trace_run2", "net_rx_action"]),
            Some(OBSERVER)
        );
    }

    #[test]
    fn a_module_decides_what_no_name_does() {
        let of = |name: &str, module: &str| {
            classify(&Frame { name: name.to_owned(), module: module.to_owned(), kernel: true }).0
        };
        assert_eq!(of("xmit_frame_ring", "mlx5_core"), Verdict::Layer(index("driver")));
        assert_eq!(of("some_eval", "nft_compat"), Verdict::Layer(index("netfilter")));
        // Named by its author like a function of TCP, and none.
        assert_eq!(of("bpf_prog_1234_tcp_x", "bpf"), Verdict::Layer(index("BPF")));
        assert_eq!(of("xmit_frame_ring", "unheard_of"), Verdict::Nothing);
        let user = |name: &str, module: &str| {
            classify(&Frame { name: name.to_owned(), module: module.to_owned(), kernel: false }).0
        };
        for (name, module, layer) in [
            ("ring_core_0_17_14__aes_gcm_enc_update_vaes_avx2", "wirecost", CRYPTO),
            ("_aesni_ctr32_ghash_6x", "wirecost", CRYPTO),
            ("__ecp_nistz256_mul_montx", "wirecost", CRYPTO),
            ("ring::aead::algorithm::aes_gcm_seal", "wirecost", CRYPTO),
            ("anything", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", CRYPTO),
            ("rustls::record_layer::RecordLayer::encrypt_outgoing", "wirecost", TLS),
            ("<rustls::conn::ConnectionCore<T>>::deframe", "wirecost", TLS),
            ("anything", "/usr/lib/x86_64-linux-gnu/libssl.so.3", TLS),
        ] {
            assert_eq!(user(name, module), Verdict::Layer(index(layer)), "{name}");
        }
        assert_eq!(user("strings_of", "wirecost"), Verdict::Layer(index(APPLICATION)));
        let user = Frame { name: "tcp_x".to_owned(), module: "app".to_owned(), kernel: false };
        assert_eq!(classify(&user).0, Verdict::Layer(index(APPLICATION)));
    }

    #[test]
    fn a_function_is_named_once_and_without_underscores() {
        let mut seen = BTreeMap::new();
        let lists = ALL.iter().map(|layer| (layer.name, layer.functions));
        for (name, functions) in lists.chain([("caller", CALLER)]) {
            for function in words(functions) {
                assert_eq!(bare(function), function, "{name}");
                if let Some(other) = seen.insert(function, name) {
                    panic!("{function} is in {other} and in {name}");
                }
            }
        }
        let names: std::collections::BTreeSet<&str> = ALL.iter().map(|layer| layer.name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    /// The table for people.
    fn document() -> String {
        let mut text = String::from(
            "# Layers\n\n\
             The probe `functions` divides busy samples by layer. This file is generated from the table in\n\
             `crates/observe/src/probes/functions/layers.rs`. A test compares them; to regenerate it, run\n\
             `UPDATE_DOCS=1 cargo test -p wirecost-observe layers`.\n\n\
             - The innermost function of a sample decides, by its name without leading underscores and\n  \
             compiler suffixes. `*` matches any suffix; the longest match wins. Functions without a match\n  \
             are assigned by module.\n\
             - Helper functions that everything calls pass the layer to their caller. So do functions that\n  \
             enable interrupts: the sampling interrupt waits for them, so the time belongs to the code that\n  \
             ran with interrupts disabled.\n\
             - Everything under a tracepoint is `observer`.\n\
             - Other functions have no layer. Their share is `unmapped`, with their names.\n\n\
             | layer | contents |\n|---|---|\n",
        );
        for layer in ALL {
            let _ = writeln!(text, "| {} | {} |", layer.name, layer.holds);
        }
        text += "\n## Functions\n";
        let list = |text: &'static str| {
            let mut sorted: Vec<&str> = words(text).collect();
            sorted.sort_unstable();
            sorted.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ")
        };
        for layer in ALL.iter().filter(|layer| !layer.functions.is_empty()) {
            let _ = write!(text, "\n**{}**: {}\n", layer.name, list(layer.functions));
            if !layer.modules.is_empty() {
                let _ = write!(text, "\nModules: {}\n", list(layer.modules));
            }
        }
        for library in LIBRARIES {
            let _ = write!(
                text,
                "\n**{}**, in user space: {}\n\nLibraries: {}\n",
                library.layer,
                list(library.functions),
                list(library.files)
            );
        }
        let _ = write!(text, "\n**Passed to the caller**: {}\n", list(CALLER));
        let _ = write!(text, "\n**Everything under these is tracing**: {}\n", list(TRACING));
        text
    }

    #[test]
    fn the_document_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/layers.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == document(),
            "docs/layers.md differs from the table: see its first lines"
        );
    }
}
